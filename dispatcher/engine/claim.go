package engine

import (
	"context"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/engine/plan"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// claimPause is the longest rest of the claim loop.
const claimPause = time.Minute

// claimLoop sleeps until the head of the timeline is nearly due, and claims: a lone fire at once,
// under load as many as fill a batch or come within half of the claim lead.
func (e *Engine) claimLoop(ctx context.Context) {
	ctx, end := e.progress.Watch(ctx, "claim", claimPause)
	defer end()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		loop.Turned(ctx)
		if tried := e.claimOnce(ctx, e.clock.Now()); tried > 0 {
			if tried < e.opts.Batch {
				e.waitForBatch(ctx, timer)
			}
			continue
		}
		wait := claimPause // a change of the timeline, or room in the pool, ends it earlier
		if head, ok := e.plan.Timeline.Head(); ok {
			wait = min(wait, e.clock.Until(head.Add(-e.opts.Lead)))
		}
		if !e.fleet.Active() {
			wait = plan.LeasePause
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-e.plan.Timeline.Changed:
		case <-e.pool.Freed():
		}
	}
}

// waitForBatch lets the next batch fill, as long as that makes no fire late. The number of statements then depends on
// the time and not on the number of fires.
func (e *Engine) waitForBatch(ctx context.Context, timer *time.Timer) {
	most := e.opts.Lead / 2
	for until := time.Now().Add(most); ctx.Err() == nil; {
		wait := time.Until(until)
		if head, ok := e.plan.Timeline.Head(); ok {
			wait = min(wait, e.clock.Until(head.Add(-most)))
		}
		if wait <= 0 {
			return
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-e.plan.Timeline.Changed: // a fire may be due at once
		case <-e.pool.Freed():
			return
		}
	}
}

// claimOnce claims one batch of the fires that are due by now plus the claim lead and have a place in the pool, submits
// the runs that it won to the pool, and plans the following fires. It returns how many fires it tried.
func (e *Engine) claimOnce(ctx context.Context, now time.Time) (tried int) {
	if !e.fleet.Active() {
		return 0
	}
	due := e.plan.Timeline.Take(now.Add(e.opts.Lead), e.opts.Batch, e.pool.Admit, e.pool.Release)
	if len(due) == 0 {
		return 0
	}
	batch := dispatcher.ClaimBatch{Node: e.fleet.ID(), Token: e.claims.Draw(), Lead: 2 * e.opts.Lead}
	defer e.claims.Close(batch.Token)
	taken := due
	if due, batch.Advances = e.advances(taken, now); len(due) == 0 {
		e.plan.Timeline.Claimed(taken, nil)
		return len(taken)
	}
	failpoint.Hit(failpoint.BeforeClaim)
	held, err := e.store.Claim(loop.WithoutCancel(ctx), batch)
	failpoint.Hit(failpoint.AfterClaim)
	held = e.claims.Won(ctx, batch.Node, batch.Token, held, err)
	byTrigger := make(map[int64]*run.HeldRun, len(held))
	for i := range held {
		byTrigger[held[i].TriggerID] = &held[i]
	}
	e.plan.Timeline.Claimed(taken, byTrigger)
	won, lost := make([]*plan.Held, 0, len(held)), []pool.QueueKey(nil)
	for i, d := range due {
		run, ok := byTrigger[d.ID]
		if ok {
			_, delayed := d.Schedule.FixedDelay()
			won = append(won, &plan.Held{
				HeldRun: *run, Node: batch.Node, Due: d.DueAt, Queue: d.Queue, Weight: d.Weight,
				Detail: plan.Detail{Job: d.Job, Schedule: d.Schedule, Delayed: delayed},
			})
		} else {
			lost = append(lost, d.Queue)
		}
		e.plan.PlanNext(*d, batch.Advances[i], now, ok)
	}
	e.metrics.claimed(len(won), len(lost))
	failpoint.Hit(failpoint.BeforeQueue)
	e.pool.Submit(won)
	failpoint.Hit(failpoint.InPool)
	e.pool.Release(lost...)
	return len(taken)
}

// advances returns the claims of due fires that are claimable. If a next fire cannot be found within bounds, its trigger is
// left out and put into state error: a claim would end the trigger without a message.
func (e *Engine) advances(due []*plan.Entry, now time.Time) (claimable []*plan.Entry, advances []dispatcher.Advance) {
	advances = make([]dispatcher.Advance, 0, len(due))
	claimable, broken := due, false
	for i, d := range due {
		if !d.Claimable(now) { // a poll reads the trigger again
			if !broken {
				claimable, broken = slices.Clone(due[:i]), true
			}
			e.pool.Release(d.Queue)
			e.plan.LostFires.Store(true)
			e.wakePoll.Notify()
			continue
		}
		var then time.Time
		ok := false
		err := dispatcher.WithoutPanic(func() (err error) {
			then, ok, err = d.Schedule.Find(d.NextFireTime)
			return err
		})
		switch {
		case err != nil:
			if !broken {
				claimable, broken = slices.Clone(due[:i]), true
			}
			e.pool.Release(d.Queue)
			e.broken.add(brokenTrigger{d.DueTrigger, err})
			continue
		case ok:
			advances = append(advances, d.AdvanceTo(then, d.DueAfter(then, now)))
		default:
			advances = append(advances, d.Advance())
		}
		if broken {
			claimable = append(claimable, d)
		}
	}
	return claimable, advances
}

// brokenTrigger is a trigger that cannot be evaluated, and the reason.
type brokenTrigger struct {
	dispatcher.DueTrigger
	reason error
}

// brokenLoop puts triggers that could not be evaluated into state error. The claim loop must not wait for that.
func (e *Engine) brokenLoop(ctx context.Context) {
	e.broken.serve(ctx, func(ctx context.Context) {
		for _, one := range e.broken.take() {
			e.plan.Quarantine(ctx, one.DueTrigger, one.reason)
		}
	})
}

// oldClaim is the age at which a node unfolds a claim of its own: runs that still execute get rows of their own. Most
// attempts are over by then, and the claim with them, so that claims are few and young, even if attempts are long.
const oldClaim = 30 * time.Second

// unfoldLoop unfolds this node's old claims, once a window.
func (e *Engine) unfoldLoop(ctx context.Context) {
	e.every(ctx, "unfold claims", pace{interval: e.opts.Window}, func(ctx context.Context, now time.Time) error {
		unfolded, err := e.store.UnfoldClaims(ctx, e.fleet.ID(), oldClaim, now)
		if unfolded > 0 {
			e.log.DebugContext(ctx, "claims unfolded", "node", e.fleet.ID().String(), "count", unfolded)
		}
		return err
	})
}
