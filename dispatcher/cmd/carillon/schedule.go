package main

import (
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// scheduleCommand works with expressions.
type scheduleCommand struct {
	Next scheduleNextCommand `cmd:"" help:"Print the next fire times of an expression."`
}

// scheduleNextCommand prints fire times.
type scheduleNextCommand struct {
	Expression string `arg:"" help:"A Quartz or unix cron expression, rate(5m), or at(2026-05-01T10:00:00Z)."`
	Dialect    string `placeholder:"NAME" help:"How to read the expression; default recognises it."`
	Timezone   string `placeholder:"ZONE" help:"IANA time zone; default UTC."`
	From       string `placeholder:"INSTANT" help:"Print fires after this RFC 3339 instant; default now."`
	Count      int    `default:"10" help:"How many to print, 1 to 1000."`
	Gap        string `placeholder:"RULE" help:"Local times that daylight saving skips: skip or next; default skip."`
	Overlap    string `placeholder:"RULE" help:"Local times that daylight saving repeats: last, first or both; default last."`
}

// Run prints one fire time a line, in UTC and in the schedule's zone.
func (s *scheduleNextCommand) Run(c console) error {
	if s.Count < 1 || s.Count > 1000 {
		return &usageError{fmt.Errorf("--count: %d is not between 1 and 1000", s.Count)}
	}
	from := time.Now()
	if s.From != "" {
		var err error
		if from, err = dispatcher.ParseInstant(s.From); err != nil {
			return &usageError{fmt.Errorf("--from: %w", err)}
		}
	}
	parsed, err := schedule.Parse(schedule.Spec{
		Expression: s.Expression, Dialect: schedule.Dialect(s.Dialect), Timezone: s.Timezone,
		Gap: schedule.Gap(s.Gap), Overlap: schedule.Overlap(s.Overlap), Anchor: from,
	})
	if err != nil {
		return &usageError{err}
	}
	zone, err := time.LoadLocation(parsed.Spec().Timezone)
	if err != nil {
		return err
	}
	at := from
	for range s.Count {
		next, ok := parsed.Next(at)
		if !ok {
			_, err := fmt.Fprintln(c.out, "none")
			return err
		}
		if _, err := fmt.Fprintf(c.out, "%s  %s\n", dispatcher.FormatInstant(next), next.In(zone).Format("Mon 2006-01-02 15:04:05 -07:00 MST")); err != nil {
			return err
		}
		at = next
	}
	return nil
}
