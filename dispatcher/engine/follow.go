package engine

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/engine/plan"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// followPage is how many ends one transaction handles.
const followPage = 200

// followOnce queues the runs that follow the ends of others: at once after an end that this node recorded or heard of, and
// otherwise, as after the death of the recording node, within a handler interval. Ends that live nodes record are late by
// less than retriesMargin, as their records are. The next look without a lower bound finds later ends, those that were set
// aside, and those of a node that died while it handled them.
func (e *Engine) followOnce(ctx context.Context, now time.Time) error {
	look := e.plan.Floors.Ends.Begin(now, 0, time.Time{})
	query := dispatcher.FollowQuery{Limit: followPage, From: look.From, After: map[int64]time.Time{}}
	for ctx.Err() == nil {
		loop.Turned(ctx)
		done, err := e.store.FollowEnds(ctx, query)
		if err != nil {
			return err
		}
		if done.Ends > 0 {
			failpoint.Hit(failpoint.AfterFollow)
		}
		if done.Queued > 0 {
			e.wakeAdopt.Notify()
		}
		if !done.More {
			e.plan.Floors.Ends.End(look, time.Time{}, now.Add(-plan.RetriesMargin))
			return nil
		}
		maps.Copy(query.After, done.Latest)
	}
	return nil
}

// followed reports whether something may follow the end of a run, as far as the node knows its job.
func (e *Engine) followed(r plan.Held, outcome run.Outcome) bool {
	if r.Shard > 0 {
		return false
	}
	job := r.Detail.Job
	if latest, cached := e.plan.Jobs.Get(r.JobID, 0); cached {
		job = latest
	}
	if job == nil {
		return true // the database knows
	}
	wanted := run.FollowsFailure | run.FollowsAlerts
	if outcome.State == run.Succeeded {
		wanted = run.FollowsSuccess | run.FollowsAlerts
	}
	return job.Follows&wanted != 0
}

// delays are the triggers with a fixed delay whose runs end on this node. Their next fires count from those ends, so
// the claim cannot write them. This is only the quick way: the adopt loop finds in the database the triggers whose run
// ended otherwise (cancelled, or recorded by a node that then died).
type delays struct {
	mu       sync.Mutex
	expected map[int64]bool // triggers with an outcome that is about to be recorded
	ended    *pile[int64]
}

// expect notes that the outcome of a run of a fixed delay will be recorded.
func (d *delays) expect(trigger int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.expected[trigger] = true
}

// recorded notes the records of fixed delays.
func (d *delays) recorded(records []dispatcher.Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.expected) == 0 {
		return
	}
	for _, r := range records {
		if d.expected[r.TriggerID] {
			delete(d.expected, r.TriggerID)
			d.ended.add(r.TriggerID)
		}
	}
}

// delayLoop schedules the next fire of fixed delays as soon as their runs are recorded.
func (e *Engine) delayLoop(ctx context.Context) {
	e.delays.ended.serve(ctx, func(ctx context.Context) {
		if ended := e.delays.ended.take(); len(ended) > 0 {
			failpoint.Hit(failpoint.BeforeScheduleNext)
			e.log.Failed(ctx, "schedule fixed delays", e.plan.ScheduleNext(ctx, ended, e.clock.Now()))
		}
	})
}

// goneTargets are the attempts whose target responded with 410 (Gone): it wants no more calls. Their triggers are
// disabled after the outcome is stored, because only then is it certain that the run was still this node's. The store
// leaves a trigger alone that was changed since the run was claimed: the response was about the earlier definition.
type goneTargets struct{ attempts *pile[dispatcher.Record] }

// recorded notes the attempts among records whose target is gone.
func (g goneTargets) recorded(records []dispatcher.Record) {
	for _, r := range records {
		if r.Outcome.HTTPStatus == http.StatusGone && r.Outcome.State != run.Succeeded {
			g.attempts.add(r)
		}
	}
}

// disableGone disables the triggers of targets that are gone, each until the database has responded.
func (e *Engine) disableGone(ctx context.Context) {
	type definition struct{ trigger, revision int64 }
	done := map[definition]bool{} // a target may have responded to many runs at once
	for _, r := range e.gone.attempts.take() {
		if is := (definition{r.TriggerID, r.Revision}); !done[is] {
			reason := fmt.Sprintf("the target responded 410 (Gone) to run %s; resume the trigger when the target accepts calls again", r.Key)
			loop.UntilDone(ctx, e.log.Logger, "disable trigger", 1, func() (err error) {
				done[is], err = e.store.Disable(ctx, r, reason, time.Time{})
				return err
			})
		}
	}
}
