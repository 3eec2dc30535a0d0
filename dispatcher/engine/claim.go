package engine

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
)

// claimLoop sleeps until the head of the timeline is about to be due, and claims: a lone fire at
// once, under load as many as fill a batch or come within half of the claim lead.
func (e *Engine) claimLoop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		if tried := e.claimOnce(ctx, e.clock.now()); tried > 0 {
			if tried < e.opts.Batch {
				e.linger(ctx, timer)
			}
			continue
		}
		wait := time.Hour // only a change of the timeline, or room in the pool, ends it earlier
		if head, ok := e.timeline.head(); ok {
			wait = e.clock.until(head.Add(-e.opts.Lead))
		}
		if !e.fleet.active() {
			wait = leasePause
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-e.timeline.changed:
		case <-e.pool.freed:
		}
	}
}

// linger lets the next batch fill, as long as that makes no fire late: the statements that a
// database has to take then follow from the time and not from the number of fires.
func (e *Engine) linger(ctx context.Context, timer *time.Timer) {
	most := e.opts.Lead / 2
	for until := time.Now().Add(most); ctx.Err() == nil; {
		wait := time.Until(until)
		if head, ok := e.timeline.head(); ok {
			wait = min(wait, e.clock.until(head.Add(-most)))
		}
		if wait <= 0 {
			return
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-e.timeline.changed: // perhaps by a fire that is due at once
		case <-e.pool.freed:
			return
		}
	}
}

// claimOnce claims one batch of what is due by now plus the claim lead and has a place in the
// pool, gives what was won to the pool, and plans the following fires. It returns how many it
// tried.
func (e *Engine) claimOnce(ctx context.Context, now time.Time) (tried int) {
	if !e.fleet.active() {
		return 0
	}
	due := e.timeline.take(now.Add(e.opts.Lead), e.opts.Batch, e.pool.admit, e.pool.release)
	if len(due) == 0 {
		return 0
	}
	batch := dispatcher.ClaimBatch{
		Node: e.fleet.id(), Token: e.tokens.draw(), Lead: 2 * e.opts.Lead,
		Advances: make([]dispatcher.Advance, len(due)),
	}
	defer e.tokens.close(batch.Token)
	for i, d := range due {
		batch.Advances[i] = d.advance()
		if then, ok := d.schedule.Next(d.NextFireTime); ok {
			batch.Advances[i] = d.advanceTo(then, d.dueAfter(then, now))
		}
	}
	failpoint.Hit(failpoint.BeforeClaim)
	held, err := e.store.Claim(uncut(ctx), batch)
	failpoint.Hit(failpoint.AfterClaim)
	if err != nil {
		held = e.reconcile(ctx, batch.Node, batch.Token, err)
	}
	byTrigger := make(map[int64]dispatcher.HeldRun, len(held))
	for _, run := range held {
		byTrigger[run.TriggerID] = run
	}
	e.timeline.claimed(due, byTrigger)
	won, lost := make([]*heldRun, 0, len(held)), []lane(nil)
	for i, d := range due {
		run, ok := byTrigger[d.ID]
		if ok {
			_, delayed := d.schedule.FixedDelay()
			won = append(won, &heldRun{
				HeldRun: run, node: batch.Node, due: d.DueAt, lane: d.lane, weight: d.weight, definition: d.definition, delayed: delayed, schedule: d.schedule,
			})
		} else {
			lost = append(lost, d.lane)
		}
		e.follow(*d, batch.Advances[i], now, ok)
	}
	e.work.claimed(len(won))
	e.metrics.claimed(len(won), len(lost))
	failpoint.Hit(failpoint.BeforeQueue)
	e.pool.submit(won)
	failpoint.Hit(failpoint.InPool)
	e.pool.release(lost...)
	return len(due)
}

// uncut is for statements that win runs: a shutdown waits for their responses, as long as their own
// deadlines let it. One that is cut off may yet be committed, when the node has looked at what it
// won: then nobody hands it back, and it is lost with the node.
func uncut(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }

// advance returns the compare-and-swap of the trigger of e, without what follows.
func (e *entry) advance() dispatcher.Advance {
	return dispatcher.Advance{
		TriggerID: e.ID, Revision: e.Revision, CalendarRevision: e.CalendarRevision,
		Prev: e.PrevFireTime, Next: e.NextFireTime,
	}
}

// advanceTo is advance with what follows.
func (e *entry) advanceTo(then, due time.Time) dispatcher.Advance {
	advance := e.advance()
	advance.Then, advance.ThenDue = then, due
	return advance
}

// dueAfter returns when the fire that follows e is due. Jitter may let it be due earlier than
// e, but a trigger fires in order, and waiting for its turn is no lateness.
func (e *entry) dueAfter(then, now time.Time) time.Time {
	if e.late() {
		return e.pacedAfter(then, now)
	}
	due := then.Add(e.schedule.Delay(then))
	if due.Before(e.DueAt) {
		return e.DueAt
	}
	return due
}

// follow plans the fire after one that was claimed or lost. A trigger that another node is
// preferred for is left to that node, also when this one has just fired it: the shares have
// moved. For a lost fire of our own the database knows what became of it; see sweepLoop.
func (e *Engine) follow(d entry, claimed dispatcher.Advance, now time.Time, won bool) {
	switch {
	case !e.fleet.prefers(d.DueTrigger):
	case !won:
		e.lost.Store(true)
	case !claimed.Then.IsZero() && claimed.ThenDue.Before(now.Add(e.opts.Window)):
		d.PrevFireTime, d.NextFireTime, d.DueAt = d.NextFireTime, claimed.Then, claimed.ThenDue
		e.timeline.add(d)
	}
}

// reconcile finds out what a statement has won whose response was lost: it asks until the
// database answers. What was not won is found again by a poll.
func (e *Engine) reconcile(ctx context.Context, node dispatcher.NodeID, token dispatcher.Token, cause error) []dispatcher.HeldRun {
	e.log.WarnContext(ctx, "outcome of a claim is unknown and read again", "node", node.String(), "err", cause)
	// A shutdown does not end it at once: what was won is to be handed back.
	asking := context.WithoutCancel(ctx)
	for tries, pause := 0, 100*time.Millisecond; ctx.Err() == nil || tries < 3; tries, pause = tries+1, min(2*pause, 5*time.Second) {
		held, err := e.store.Held(asking, node, token)
		if err == nil {
			return held
		}
		e.log.WarnContext(ctx, "read claims", "err", err)
		sleep(asking, pause)
	}
	// The node leaves without them; after its death they are adopted.
	return nil
}
