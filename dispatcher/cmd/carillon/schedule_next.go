package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// scheduleCommand evaluates schedule expressions.
type scheduleCommand struct {
	Next         scheduleNextCommand `cmd:"" help:"Print the next fire times of an expression." example:"carillon schedule next --timezone Europe/Berlin --count 3 '0 0 6 1 * ?'"`
	DSTReport    dstReportCommand    `cmd:"" name:"dst-report" help:"List the triggers of a database or file that daylight saving skips, moves or repeats." example:"carillon schedule dst-report --year 2027"`
	TZDataReport zonesReportCommand  `cmd:"" name:"tzdata-report" help:"List the triggers of a database or file whose fires of the next 12 months other time zone data move." example:"carillon schedule tzdata-report --to /usr/share/zoneinfo"`
}

// scheduleNextCommand prints scheduled times.
type scheduleNextCommand struct {
	apiFlags
	Expression string `arg:"" optional:"" help:"A Quartz, unix or EventBridge expression, rate(5m), at(2026-05-01T10:00:00Z), every 3 months, or every 45 minutes from 9:00 to 17:00 on MON-FRI."`
	Dialect    string `placeholder:"NAME" help:"Dialect of the expression: quartz, unix, aws, interval, at, calendar_interval or daily_interval. Default: detected."`
	Timezone   string `placeholder:"ZONE" help:"IANA time zone. Default: UTC."`
	From       string `placeholder:"INSTANT" help:"Print fires after this time, in RFC 3339. Default: now."`
	Count      int    `default:"10" help:"Number of fires, 1 to 1000."`
	Gap        string `placeholder:"RULE" help:"Rule for local times that daylight saving skips: skip or next. The default depends on the expression: skip for cron, next for at(...). every n days or more keeps its distance to the skipped time (02:30 becomes 03:30)."`
	Overlap    string `placeholder:"RULE" help:"Rule for local times that daylight saving repeats: last, first or both. The default depends on the expression: both for cron expressions with all 24 hours, first for every n days or more, otherwise last."`
	Identity   string `placeholder:"NAME" help:"Identity of the trigger that H hashes, such as app/job/trigger."`
	calendarFlags
	Batch bool `help:"Read queries from standard input, one per line, and print one line for each; see below."`
}

// Help documents the format of --batch.
func (scheduleNextCommand) Help() string { return batchHelp }

// Run prints one scheduled time per line, in UTC and in the schedule's zone.
func (s *scheduleNextCommand) Run(ctx context.Context, c console) error {
	if s.Batch {
		return runBatch(c.in, c.out)
	}
	if s.Expression == "" {
		return &usageError{errors.New("an expression is missing; write one, or use --batch to read queries from standard input")}
	}
	if s.Count < 1 || s.Count > 1000 {
		return &usageError{fmt.Errorf("--count: %d is not between 1 and 1000", s.Count)}
	}
	from := time.Now()
	if s.From != "" {
		var err error
		if from, err = input.ParseInstant(s.From); err != nil {
			return &usageError{fmt.Errorf("--from: %w", err)}
		}
	}
	spec := schedule.Spec{
		Expression: s.Expression, Dialect: schedule.Dialect(s.Dialect), Timezone: s.Timezone,
		Gap: schedule.Gap(s.Gap), Overlap: schedule.Overlap(s.Overlap), Anchor: from, Identity: s.Identity,
	}
	if err := s.apply(ctx, &s.apiFlags, &spec, c.err); err != nil {
		return err
	}
	parsed, err := schedule.Parse(spec)
	if err != nil {
		return &usageError{err}
	}
	if spec.Timezone == "" && schedule.WallClock(spec.Expression, spec.Dialect) {
		fmt.Fprintln(c.err, "note: without --timezone, times are in UTC; the trigger of a job must name its zone")
	}
	return s.print(c, parsed, from)
}

func (s *scheduleNextCommand) print(c console, parsed *schedule.Schedule, from time.Time) error {
	fmt.Fprintln(c.err, parsed.Describe(from))
	for _, warning := range parsed.Warnings(from) {
		fmt.Fprintf(c.err, "warning: %s\n", warning.Message)
	}
	times := parsed.Between(from, farAway, s.Count)
	for _, at := range times {
		if _, err := fmt.Fprintf(c.out, "%s  %s\n", input.FormatInstant(at),
			parsed.In(at).Format("Mon 2006-01-02 15:04:05 -07:00 MST")); err != nil {
			return err
		}
	}
	if len(times) < s.Count {
		_, err := fmt.Fprintln(c.out, "none")
		return err
	}
	return nil
}

// farAway is after the last scheduled time of any schedule.
var farAway = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
