package engine

import (
	"context"
	"maps"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// followPage is how many ends one transaction follows.
const followPage = 200

// followLoop queues what follows the ends of runs: at once if this node recorded them or a notification tells of them, and
// otherwise, as after the death of the node that did, within a handler interval.
func (e *Engine) followLoop(ctx context.Context) {
	e.every(ctx, "follow", e.opts.Handler, e.wakeFollow, e.followOnce)
}

// followOnce follows all ends that there are. The ends that this node and others make are late by less than retriesMargin, as
// their records are; those that come later, and those that were set aside or are left by a node that died over them, are found by
// the next look without a lower bound.
func (e *Engine) followOnce(ctx context.Context, now time.Time) error {
	look := e.floors.ends.begin(now, 0, time.Time{})
	query := dispatcher.FollowQuery{Limit: followPage, From: look.from, After: map[int64]time.Time{}}
	for ctx.Err() == nil {
		turned(ctx)
		done, err := e.store.FollowEnds(ctx, query)
		if err != nil {
			return err
		}
		if done.Ends > 0 {
			failpoint.Hit(failpoint.AfterFollow)
		}
		if done.Queued > 0 {
			wake(e.wakeAdopt)
		}
		if !done.More {
			e.floors.ends.end(look, time.Time{}, now.Add(-retriesMargin))
			return nil
		}
		maps.Copy(query.After, done.Latest)
	}
	return nil
}

// followed tells whether something may follow the end of a run, as far as the node knows its job.
func (e *Engine) followed(r heldRun, outcome run.Outcome) bool {
	if r.Shard > 0 {
		return false
	}
	job := r.Detail.job
	if latest, cached := e.jobs.get(r.JobID, 0); cached {
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

// wakeFollowers wakes the loop if some records are of runs that something may follow.
func (e *Engine) wakeFollowers(records []dispatcher.Record) {
	for i := range records {
		if records[i].Followed {
			wake(e.wakeFollow)
			return
		}
	}
}
