package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/tfconfig"
)

// nextCommand lists the next fires of an app.
type nextCommand struct {
	apiFlags
	outputFlags
	Of       string         `arg:"" name:"app[/job]" help:"The app, such as billing, or a job, such as billing/invoices."`
	For      input.Duration `default:"12h" help:"How far to look ahead, at most 8760h."`
	Timezone string         `placeholder:"ZONE" help:"IANA time zone of the times. Default: that of this machine."`
	Each     int            `default:"10" help:"How many fires of one trigger to list, 1 to 1000; the others are counted."`
}

// upcoming is an upcoming fire.
type upcoming struct {
	At      time.Time  `json:"at"`
	Job     string     `json:"job"`
	Trigger string     `json:"trigger"`
	DueAt   *time.Time `json:"due_at,omitempty"` // with jitter
	// Held is why the fire will not run at that time; empty if it will.
	Held string `json:"held,omitempty"`
	// More, on the last listed fire of a trigger, counts the unlisted ones. Until is the last of them.
	More  int        `json:"more,omitempty"`
	Until *time.Time `json:"until,omitempty"`
}

// Run prints the fires of all jobs, ordered by time.
func (n *nextCommand) Run(ctx context.Context, c console) error {
	now := time.Now()
	zone := now.Location()
	if n.Timezone != "" {
		var err error
		if zone, err = locationOf(n.Timezone); err != nil {
			return &usageError{fmt.Errorf("--timezone: %w", err)}
		}
	}
	if n.For <= 0 || n.For.Std() > 366*24*time.Hour || n.Each < 1 || n.Each > 1000 {
		return &usageError{fmt.Errorf("--for %s has to be at most 8760h, and --each %d from 1 to 1000", n.For, n.Each)}
	}
	content, err := n.content(ctx, c)
	if err != nil {
		return err
	}
	fires, problems := n.fires(content, now, now.Add(n.For.Std()))
	for _, problem := range problems {
		fmt.Fprintln(c.err, "carillon:", plain(problem))
	}
	err = printList(n.outputFlags, c, fires, zoneName(zone)+"\tJOB\tTRIGGER\tNOTE", func(u upcoming) []any {
		return []any{u.At.In(zone).Format("Mon 2006-01-02 15:04:05"), u.Job, u.Trigger, u.note(zone)}
	})
	if err == nil && len(fires) == 0 && n.Output == outputTable {
		fmt.Fprintf(c.err, "carillon: %s fires nothing before %s\n", plain(n.Of), now.Add(n.For.Std()).In(zone).Format(time.DateTime))
	}
	return err
}

// content reads the app, with all of its jobs or with the named one.
func (n *nextCommand) content(ctx context.Context, c console) (content tfconfig.Content, err error) {
	app, job, _, err := cutOf(n.Of, "APP[/JOB]")
	if err != nil {
		return content, err
	}
	api, err := n.client(ctx)
	if err == nil {
		content, err = contentOf(ctx, c, api, app)
	}
	if err != nil || job == "" {
		return content, err
	}
	content.Jobs = slices.DeleteFunc(content.Jobs, func(one dispatcher.Job) bool { return one.Name != job })
	if len(content.Jobs) == 0 {
		err = dispatcher.NotFound("job", n.Of)
	}
	return content, err
}

// locationOf returns a zone by the data that schedules are computed with.
func locationOf(zone string) (*time.Location, error) {
	clock, err := schedule.Parse(schedule.Spec{Expression: "@daily", Timezone: zone})
	if err != nil {
		return nil, err
	}
	return clock.In(time.Time{}).Location(), nil
}

func zoneName(zone *time.Location) string {
	if zone == time.Local {
		return "LOCAL TIME"
	}
	return zone.String()
}

// note describes what is special about a fire.
func (u upcoming) note(zone *time.Location) string {
	var parts []string
	if u.Held != "" {
		parts = append(parts, u.Held)
	}
	if u.DueAt != nil {
		parts = append(parts, "runs at "+u.DueAt.In(zone).Format("15:04:05"))
	}
	if u.More > 0 {
		parts = append(parts, fmt.Sprintf("and %d more until %s", u.More, u.Until.In(zone).Format("Mon 15:04:05")))
	}
	return strings.Join(parts, "; ")
}

// fires returns the fires of an app in (from, to], and the triggers that cannot be evaluated.
func (n *nextCommand) fires(content tfconfig.Content, from, to time.Time) (all []upcoming, problems []string) {
	calendars := dispatcher.CompileCalendars(content.Calendars)
	for _, job := range content.Jobs {
		for name, t := range job.Triggers {
			if t.State == dispatcher.TriggerComplete {
				continue
			}
			s, err := t.Parse(job.Identity(name), t.AnchorAt, calendars)
			if err != nil {
				problems = append(problems, fmt.Sprintf("trigger %s/%s: %v", job.Name, name, err))
				continue
			}
			for _, one := range n.listed(s, t.NextFireTime, from, to) {
				one.Job, one.Trigger, one.Held = job.Name, name, whyHeld(content.App, job, t, one.At)
				all = append(all, one)
			}
		}
	}
	slices.SortFunc(all, func(a, b upcoming) int {
		return cmp.Or(a.At.Compare(b.At), strings.Compare(a.Job, b.Job), strings.Compare(a.Trigger, b.Trigger))
	})
	slices.Sort(problems)
	return all, problems
}

// listed returns the fires of one trigger. With a fixed delay, fires after next depend on the duration of the run.
func (n *nextCommand) listed(s *schedule.Schedule, next *time.Time, from, to time.Time) (found []upcoming) {
	const most = 100_000
	var times []time.Time
	if _, delayed := s.FixedDelay(); !delayed {
		times = s.Between(from, to, most)
	} else if next != nil && next.After(from) && !next.After(to) {
		times = []time.Time{*next}
	}
	for _, at := range times[:min(len(times), n.Each)] {
		one := upcoming{At: at}
		if delay := s.Delay(at); delay > 0 {
			one.DueAt = new(at.Add(delay))
		}
		found = append(found, one)
	}
	if rest := len(times) - len(found); rest > 0 {
		last := &found[len(found)-1]
		last.More, last.Until = rest, &times[len(times)-1]
	}
	return found
}

// whyHeld returns why fires of a trigger do not run at their time, or "".
func whyHeld(app access.App, job dispatcher.Job, t dispatcher.Trigger, at time.Time) string {
	switch {
	case app.Bounds != nil && app.Bounds.Suspended:
		return "the app is suspended"
	case !app.Enabled:
		return "the app is disabled"
	case !job.Enabled:
		return "the job is disabled"
	case !t.Enabled:
		return "disabled"
	case job.Paused && lasts(job.PausedUntil, at):
		return "the job is paused"
	case t.Paused && lasts(t.PausedUntil, at):
		return "paused"
	case t.State == dispatcher.TriggerError:
		return "in error: " + t.Error
	}
	for _, pause := range job.Pauses {
		if lasts(pause.Until, at) {
			return pause.What() + " are paused"
		}
	}
	return ""
}

// lasts reports whether a pause until a time, nil for no end, is active at a time.
func lasts(until *time.Time, at time.Time) bool { return until == nil || until.After(at) }
