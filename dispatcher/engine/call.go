package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/engine/plan"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// callOf finds the call of a run in the cache or, for a run that waited long, in the database. It asks the database
// until it responds.
func (e *Engine) callOf(ctx context.Context, r plan.Held) (target.Call, error) {
	call, err := e.plan.Jobs.Call(r)
	if errors.Is(err, plan.ErrGone) || errors.Is(err, plan.ErrOutdated) {
		loop.UntilDone(ctx, e.log.Logger, "read job", 1, func() error { return e.plan.Jobs.Read(ctx, []int64{r.JobID}) })
		call, err = e.plan.Jobs.Call(r)
	}
	if errors.Is(err, plan.ErrOutdated) { // the job was deleted
		err = plan.ErrGone
	}
	if r.Accepted != nil {
		return call, err // nothing is called
	}
	call.Missed = r.Detail.Missed
	for _, part := range []struct {
		wanted bool
		add    func() error
	}{
		{r.HasInput, func() error { return e.addInput(ctx, r.HeldRun, &call) }},
		{r.Kind == run.KindCatchUp && call.Missed == nil, func() error { call.Missed = e.missedRange(ctx, r); return nil }},
		{call.Templates.UseFires() && call.Trigger != "", func() error { return e.addFires(ctx, r, &call) }},
		{call.Target.Group != nil, func() error { return e.addGroup(ctx, &call) }},
		{r.Shard > 0, func() error { return e.addShard(ctx, r.HeldRun, &call) }},
	} {
		if err == nil && part.wanted {
			err = part.add()
		}
	}
	return call, err
}

// missedRange reads the range that a catch-up run of another node stands for. It returns nil if the run is past its
// retention, which the recorder will find.
func (e *Engine) missedRange(ctx context.Context, run plan.Held) (missed *run.MissedRange) {
	loop.UntilDone(ctx, e.log.Logger, "read catch-up run", 1, func() error {
		found, err := e.store.Run(ctx, run.String())
		if missed = found.Missed; errors.Is(err, dispatcher.ErrNotFound) {
			return nil
		}
		return err
	})
	return missed
}

// addFires adds to a call the fires before and after its own, by the schedule under which it was
// claimed. That schedule is in memory or, for a run of another node or an earlier attempt, on record.
func (e *Engine) addFires(ctx context.Context, run plan.Held, call *target.Call) error {
	if s := run.Detail.Schedule; s != nil {
		call.PreviousFire, call.NextFire = dispatcher.FiresAround(s, run.ScheduledAt)
		return nil
	}
	var template *target.TemplateError
	loop.UntilDone(ctx, e.log.Logger, "read the schedule of a run", 1, func() (err error) {
		call.PreviousFire, call.NextFire, err = dispatcher.NewPastSchedules(e.store, call.App).Around(ctx, run.JobID,
			run.TriggerID, run.ScheduledAt)
		if errors.As(err, &template) {
			return nil // another try would fail in the same way
		}
		return err
	})
	if template != nil {
		return template
	}
	return nil
}

// addGroup adds to a call the endpoint group that its target names. It asks the database until it responds.
func (e *Engine) addGroup(ctx context.Context, call *target.Call) error {
	name := call.Target.GroupName()
	missing := false
	read := loop.UntilDone(ctx, e.log.Logger, "read endpoint group", 1, func() (err error) {
		call.Group, err = e.plan.Groups.Get(ctx, call.App, name, e.clock.Now())
		if missing = errors.Is(err, dispatcher.ErrNotFound); missing {
			return nil // another try would fail in the same way
		}
		return err
	})
	switch {
	case missing:
		return fmt.Errorf("%w: group %s of app %s", errNoGroup, name, call.App)
	case !read:
		return errCutOff
	}
	e.used.note(call, time.Now())
	return nil
}

var (
	errNoGroup = errors.New("the endpoint group of the job was deleted before this attempt began")
	errCutOff  = errors.New("the attempt was cancelled")
)

// A target that accepts an attempt ends it later by a callback. Until then the run is a row without a node, like a
// retrying run, and it is due at its deadline. The API records a success itself. After the deadline, or a callback that
// reports a failure, a node adopts the run: it calls nothing, and records the end of the attempt as if the target had
// just responded. So retries, slots and fixed delays need no special case.

// endAccepted records the end of an attempt that its target accepted. It is a step of an attempt, for runs that were
// adopted at their deadline or after a callback.
func (e *Engine) endAccepted(ctx context.Context, a *attempt) result {
	if a.run.Accepted == nil {
		return proceed
	}
	failpoint.Hit(failpoint.BeforeCallbackEnd)
	of := *a.run.Accepted
	o := run.Outcome{
		State: run.TimedOut, StartedAt: of.StartedAt, EndedAt: e.clock.Now(), HTTPStatus: of.HTTPStatus, Class: run.ClassCallbackTime,
		Error: fmt.Sprintf("no callback came in time; the target has %s after it accepted the attempt, and after each heartbeat",
			input.Duration(of.Within)),
	}
	if o.StartedAt.IsZero() {
		o.StartedAt = a.run.ClaimedAt
	}
	switch {
	case of.TimedOut:
		o.Class, o.Error = run.ClassFunctionTime, of.Message
	case of.Failed:
		o.State, o.Class, o.Error = run.Failed, run.ClassCallback, of.Message
	}
	if o.Error == "" {
		o.Error = "the target said so by its callback"
	}
	a.outcome = o
	e.ended(ctx, a)
	if a.call.Slots > 0 || occupies(a) {
		e.slots.took(a.run.HeldRun) // the end of the run gives it back
	}
	e.record(ctx, a.run, a.outcome, e.nextOfFailed(a.run, a.call, a.outcome))
	if e.opts.OnOutcome != nil {
		e.opts.OnOutcome(a.call, a.outcome)
	}
	return finished
}
