package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/backoff"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// claimPause is the longest time that the claim loop rests.
const claimPause = time.Minute

// claimLoop sleeps until the head of the timeline is nearly due, and claims: a lone fire at once,
// under load as many as fill a batch or come within half of the claim lead.
func (e *Engine) claimLoop(ctx context.Context) {
	ctx, end := e.progress.watch(ctx, "claim", claimPause)
	defer end()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		turned(ctx)
		if tried := e.claimOnce(ctx, e.clock.now()); tried > 0 {
			if tried < e.opts.Batch {
				e.waitForBatch(ctx, timer)
			}
			continue
		}
		wait := claimPause // only a change of the timeline, or room in the pool, ends it earlier
		if head, ok := e.timeline.head(); ok {
			wait = min(wait, e.clock.until(head.Add(-e.opts.Lead)))
		}
		if !e.fleet.active() {
			wait = leasePause
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-e.timeline.changed:
		case <-e.pool.Freed():
		}
	}
}

// waitForBatch lets the next batch fill, as long as that makes no fire late. The number of statements
// then depends on the time and not on the number of fires.
func (e *Engine) waitForBatch(ctx context.Context, timer *time.Timer) {
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
		case <-e.pool.Freed():
			return
		}
	}
}

// claimOnce claims one batch of the fires that are due by now plus the claim lead and have a place in
// the pool, submits what was won to the pool, and plans the following fires. It returns how many it
// tried.
func (e *Engine) claimOnce(ctx context.Context, now time.Time) (tried int) {
	if !e.fleet.active() {
		return 0
	}
	due := e.timeline.take(now.Add(e.opts.Lead), e.opts.Batch, e.pool.Admit, e.pool.Release)
	if len(due) == 0 {
		return 0
	}
	batch := dispatcher.ClaimBatch{Node: e.fleet.id(), Token: e.tokens.draw(), Lead: 2 * e.opts.Lead}
	defer e.tokens.close(batch.Token)
	taken := due
	if due, batch.Advances = e.advances(taken, now); len(due) == 0 {
		e.timeline.claimed(taken, nil)
		return len(taken)
	}
	failpoint.Hit(failpoint.BeforeClaim)
	held, err := e.store.Claim(withoutCancel(ctx), batch)
	failpoint.Hit(failpoint.AfterClaim)
	if err != nil {
		held = e.reconcile(ctx, batch.Node, batch.Token, err)
	}
	byTrigger := make(map[int64]*run.HeldRun, len(held))
	for i := range held {
		byTrigger[held[i].TriggerID] = &held[i]
	}
	e.timeline.claimed(taken, byTrigger)
	won, lost := make([]*heldRun, 0, len(held)), []pool.QueueKey(nil)
	for i, d := range due {
		run, ok := byTrigger[d.ID]
		if ok {
			_, delayed := d.schedule.FixedDelay()
			won = append(won, &heldRun{
				HeldRun: *run, Node: batch.Node, Due: d.DueAt, Queue: d.queue, Weight: d.weight,
				Detail: runDetail{job: d.job, schedule: d.schedule, delayed: delayed},
			})
		} else {
			lost = append(lost, d.queue)
		}
		e.planNext(*d, batch.Advances[i], now, ok)
	}
	e.metrics.claimed(len(won), len(lost))
	failpoint.Hit(failpoint.BeforeQueue)
	e.pool.Submit(won)
	failpoint.Hit(failpoint.InPool)
	e.pool.Release(lost...)
	return len(taken)
}

// advances returns the claims of due fires. Those whose next fire cannot be found within bounds are left
// out and put into state error: a claim would end their trigger without a word.
func (e *Engine) advances(due []*entry, now time.Time) (claimable []*entry, advances []dispatcher.Advance) {
	advances = make([]dispatcher.Advance, 0, len(due))
	claimable, broken := due, false
	zones := schedule.CurrentZones()
	for i, d := range due {
		if d.zones != zones { // the node has switched since; a poll parses it again
			if !broken {
				claimable, broken = slices.Clone(due[:i]), true
			}
			e.pool.Release(d.queue)
			e.lostFires.Store(true)
			wake(e.wakePoll)
			continue
		}
		var then time.Time
		ok := false
		err := dispatcher.WithoutPanic(func() (err error) {
			then, ok, err = d.schedule.Find(d.NextFireTime)
			return err
		})
		switch {
		case err != nil:
			if !broken {
				claimable, broken = slices.Clone(due[:i]), true
			}
			e.pool.Release(d.queue)
			e.broken.add(brokenTrigger{d.DueTrigger, err})
			continue
		case ok:
			advances = append(advances, d.advanceTo(then, d.dueAfter(then, now)))
		default:
			advances = append(advances, d.advance())
		}
		if broken {
			claimable = append(claimable, d)
		}
	}
	return claimable, advances
}

// advance returns the compare-and-swap of the trigger of e, without the next fire.
func (e *entry) advance() dispatcher.Advance {
	return dispatcher.Advance{
		TriggerID: e.ID, JobID: e.JobID, Revision: e.Revision, CalendarRevision: e.CalendarRevision,
		Prev: e.PrevFireTime, Next: e.NextFireTime, Live: e.live(),
	}
}

// live reports whether the run of e is to be stored as a row of its own from its claim on, because something
// changes it before it ends, or asks for it when it has.
func (e *entry) live() bool {
	_, delayed := e.schedule.FixedDelay()
	return delayed || e.job == nil || e.job.Delivery == dispatcher.AtMostOnce || e.job.Slots() > 0 ||
		e.job.EndpointPolicy() != run.ConcurrencyAllow ||
		e.job.Target.Group != nil && e.job.Target.Group.Strategy == target.Broadcast
}

// advanceTo is advance with the next fire.
func (e *entry) advanceTo(then, due time.Time) dispatcher.Advance {
	advance := e.advance()
	advance.Then, advance.ThenDue = then, due
	return advance
}

// dueAfter returns when the fire after e is due. Jitter could make it due earlier than e, but a
// trigger fires in order, and waiting for its turn is not lateness.
func (e *entry) dueAfter(then, now time.Time) time.Time {
	if e.late() {
		return e.pacedAfter(then, now)
	}
	return later(then.Add(e.schedule.Delay(then)), e.DueAt)
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// planNext plans the fire after one that was claimed or lost. It leaves a trigger to the node that is
// preferred for it, even if this node has just fired it: the shares have moved. After a lost fire of
// its own, the node reads from the database what became of it; see sweepLoop.
func (e *Engine) planNext(d entry, claimed dispatcher.Advance, now time.Time, won bool) {
	switch {
	case !e.fleet.prefers(d.DueTrigger):
	case !won:
		e.lostFires.Store(true)
	case !claimed.Then.IsZero() && claimed.ThenDue.Before(now.Add(e.opts.Window)):
		d.PrevFireTime, d.NextFireTime, d.DueAt = d.NextFireTime, claimed.Then, claimed.ThenDue
		e.timeline.add(d)
	}
}

// reconcile reads which runs a statement has won whose response was lost, until the database answers.
// A poll finds again what was not won.
func (e *Engine) reconcile(ctx context.Context, node run.NodeID, token run.Token, cause error) []run.HeldRun {
	e.log.WarnContext(ctx, "response of a claim was lost; reading which runs it won", "node", node.String(), "err", cause)
	e.doubt.Store(e.clock.now().UnixMilli())
	// A shutdown does not end it at once, because the runs that were won should be handed back.
	asking := withoutCancel(ctx)
	var held []run.HeldRun
	_ = persist(asking, func() (err error) {
		held, err = e.store.Held(asking, node, token)
		return err
	}, func(f backoff.Failure) bool {
		e.logIf(ctx, "read claimed runs", f.Err)
		return ctx.Err() == nil || f.Tries < 3 // else the node leaves without the runs, and other nodes adopt them
	})
	return held
}

// tokens are the claim tokens whose runs may be on their way from the database to the pool: the claim
// may be committed and its response not here yet, for example if the node was frozen in between.
// reclaim leaves such runs alone, or they would be in the pool twice.
type tokens struct {
	mu   sync.Mutex
	open map[run.Token]bool
}

func newTokens() *tokens { return &tokens{open: map[run.Token]bool{}} }

// draw returns a new token, which is open until it is closed.
func (t *tokens) draw() run.Token {
	t.mu.Lock()
	defer t.mu.Unlock()
	token := run.Token(random63())
	t.open[token] = true
	return token
}

// close notes that the runs won under tokens are in the pool, or given up.
func (t *tokens) close(drawn ...run.Token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, token := range drawn {
		delete(t.open, token)
	}
}

func (t *tokens) isOpen(token run.Token) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open[token]
}
