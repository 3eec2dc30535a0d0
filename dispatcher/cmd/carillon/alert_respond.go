package main

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// untilFlags say how long something is to last.
type untilFlags struct {
	Until  string `placeholder:"TIME" help:"When it ends: a duration from now such as 8h, or an instant in RFC 3339. Default: it does not end by itself."`
	Reason string `help:"Why; people see it."`
}

// end reads --until; nil: it is not given.
func (u untilFlags) end(now time.Time) (*time.Time, error) {
	if u.Until == "" {
		return nil, nil
	}
	if at, err := input.ParseInstant(u.Until); err == nil {
		return &at, nil
	}
	var left input.Duration
	if err := left.UnmarshalText([]byte(u.Until)); err != nil || left <= 0 {
		return nil, &usageError{fmt.Errorf("--until: %s is neither a duration such as 8h nor an instant such as 2026-05-01T06:00:00+02:00",
			input.Echo(u.Until))}
	}
	at := now.Add(left.Std()).UTC().Truncate(time.Millisecond)
	return &at, nil
}

// conditionFlags name a condition of an alert for a job.
type conditionFlags struct {
	alertFlags
	Job       string `arg:"" help:"Name of the job."`
	Condition string `placeholder:"CONDITION" help:"Only this one: failure, missed, late, overrun, no_success, objective. Default: all that hold for the job."`
}

// alertAcknowledgeCommand acknowledges what holds.
type alertAcknowledgeCommand struct {
	conditionFlags
	untilFlags
}

// Run acknowledges it, and prints it.
func (a *alertAcknowledgeCommand) Run(ctx context.Context, c console) error {
	until, err := a.end(time.Now())
	if err != nil {
		return err
	}
	api, app, one, err := a.open(ctx)
	if err != nil {
		return err
	}
	states, err := api.AcknowledgeAlert(ctx, app, one, alert.Acknowledgement{
		Job: a.Job, Condition: target.AlertCondition(a.Condition), Until: until, Reason: a.Reason,
	})
	if err != nil {
		return err
	}
	return printStates(a.outputFlags, c, states)
}

// alertUnacknowledgeCommand takes acknowledgements back.
type alertUnacknowledgeCommand struct{ conditionFlags }

// Run takes them back, and prints what they were about.
func (a *alertUnacknowledgeCommand) Run(ctx context.Context, c console) error {
	api, app, alert, err := a.open(ctx)
	if err != nil {
		return err
	}
	states, err := api.WithdrawAcknowledgement(ctx, app, alert, a.Job, target.AlertCondition(a.Condition))
	if err != nil {
		return err
	}
	return printStates(a.outputFlags, c, states)
}

// alertMuteCommand mutes an alert.
type alertMuteCommand struct {
	alertFlags
	untilFlags
}

// Run mutes it.
func (m *alertMuteCommand) Run(ctx context.Context, c console) error {
	until, err := m.end(time.Now())
	if err != nil {
		return err
	}
	api, app, name, err := m.open(ctx)
	if err != nil {
		return err
	}
	alert, err := api.MuteAlert(ctx, app, name, alert.Mute{Until: until, Reason: m.Reason})
	if err != nil {
		return err
	}
	said := "is muted until you unmute it"
	if until != nil {
		said = "is muted until " + input.FormatInstant(*until)
	}
	return m.print(c, alert, said)
}

// alertUnmuteCommand lifts a mute.
type alertUnmuteCommand struct{ alertFlags }

// Run lifts it.
func (u *alertUnmuteCommand) Run(ctx context.Context, c console) error {
	api, app, name, err := u.open(ctx)
	if err != nil {
		return err
	}
	before, err := api.Alert(ctx, app, name)
	if err != nil {
		return err
	}
	alert, err := api.UnmuteAlert(ctx, app, name)
	if err != nil {
		return err
	}
	if before.Muted == nil {
		return u.print(c, alert, "had no mute to lift; windows of mute that it declares stay")
	}
	return u.print(c, alert, "notifies again, also of what began meanwhile and still holds")
}

// alertTestCommand tests an alert.
type alertTestCommand struct {
	alertFlags
	waitFlags
}

// Run queues a test notification, and waits for its delivery if asked to.
func (t *alertTestCommand) Run(ctx context.Context, c console) error {
	api, app, name, err := t.open(ctx)
	if err != nil {
		return err
	}
	run, err := api.TestAlert(ctx, app, name)
	if err != nil {
		return err
	}
	return t.finish(ctx, c, api, t.outputFlags, run)
}
