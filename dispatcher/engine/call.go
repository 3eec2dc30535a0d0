package engine

import (
	"context"
	"errors"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// callOf finds what a run calls: in the cache or, for a run that waited long, in the database, which
// it asks until it answers.
func (e *Engine) callOf(ctx context.Context, r heldRun) (target.Call, error) {
	call, err := e.jobs.call(r)
	if errors.Is(err, errGone) || errors.Is(err, errOutdated) {
		untilDone(ctx, e.log, "read job", 1, func() error { return e.jobs.read(ctx, []int64{r.JobID}) })
		call, err = e.jobs.call(r)
	}
	if errors.Is(err, errOutdated) { // the job is not there any more
		err = errGone
	}
	if r.Accepted != nil {
		return call, err // nothing is called
	}
	if err == nil && r.HasInput {
		err = e.addInput(ctx, r.HeldRun, &call)
	}
	call.Missed = r.Detail.missed
	if err == nil && r.Kind == run.KindCatchUp && call.Missed == nil {
		call.Missed = e.missedRange(ctx, r)
	}
	if err == nil && call.Templates.UseFires() && call.Trigger != "" {
		err = e.addFires(ctx, r, &call)
	}
	if err == nil && call.Target.Group != nil {
		err = e.addGroup(ctx, &call)
	}
	if err == nil && r.Shard > 0 {
		err = e.addShard(ctx, r.HeldRun, &call)
	}
	return call, err
}

// missedRange reads the range that a catch-up run of another node stands for; nil: the run is past
// its retention, as the recorder will find.
func (e *Engine) missedRange(ctx context.Context, run heldRun) (missed *run.MissedRange) {
	untilDone(ctx, e.log, "read catch-up run", 1, func() error {
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
func (e *Engine) addFires(ctx context.Context, run heldRun, call *target.Call) error {
	if s := run.Detail.schedule; s != nil {
		call.PreviousFire, call.NextFire = dispatcher.FiresAround(s, run.ScheduledAt)
		return nil
	}
	var template *target.TemplateError
	untilDone(ctx, e.log, "read the schedule of a run", 1, func() (err error) {
		call.PreviousFire, call.NextFire, err = dispatcher.FiresAroundInForce(ctx, e.store, call.App, run.JobID, run.TriggerID,
			run.ScheduledAt)
		if errors.As(err, &template) {
			return nil // another try would not change it
		}
		return err
	})
	if template != nil {
		return template
	}
	return nil
}
