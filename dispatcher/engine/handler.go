package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// handlerLoop is the cluster and misfire handler. Its first round is the node's start-up:
// it settles what a stop left behind.
func (e *Engine) handlerLoop(ctx context.Context) {
	e.every(ctx, "handler", e.opts.Handler, nil, e.handleOnce)
}

// adoptLoop takes runs that nobody works on, and arms fixed delays that a run left behind
// without its node, at once when a hint says that there may be some.
func (e *Engine) adoptLoop(ctx context.Context) {
	e.every(ctx, "adopt", e.opts.Handler, e.wakeAdopt, func(ctx context.Context, now time.Time) error {
		return errors.Join(e.adopt(ctx), e.rearm(ctx, nil, now))
	})
}

// handleOnce makes one round. Every write in it is a compare-and-swap, so that rounds of
// several nodes at once do no harm.
func (e *Engine) handleOnce(ctx context.Context, now time.Time) error {
	if e.fleet.mayBury() {
		buried, err := e.store.Bury(ctx, e.fleet.id(), e.opts.DeadAfter, time.Time{})
		if err != nil {
			return fmt.Errorf("declare nodes dead: %w", err)
		}
		if buried > 0 {
			e.log.WarnContext(ctx, "nodes declared dead", "count", buried)
			wake(e.wakeAdopt)
		}
	}
	if lost, err := e.store.Forfeit(ctx, time.Time{}); err != nil {
		return fmt.Errorf("end begun runs of dead nodes: %w", err)
	} else if lost > 0 {
		e.log.WarnContext(ctx, "runs of dead nodes lost, for they may have been sent and are wanted at most once", "count", lost)
	}
	if err := e.settle(ctx, now); err != nil {
		return fmt.Errorf("settle misfires: %w", err)
	}
	if err := e.reclaim(ctx, now); err != nil {
		return fmt.Errorf("reclaim runs: %w", err)
	}
	return nil
}

// reclaim executes runs that the database gives to this node and that the node does not
// have: those of a claim that was committed after its answer had been given up and after
// reconcile had looked. What is missing may be on its way to the pool; what is still
// missing an interval later is not.
func (e *Engine) reclaim(ctx context.Context, now time.Time) error {
	node, before := e.fleet.id(), e.strays
	held, err := e.store.Held(ctx, node, 0)
	if err != nil {
		return err
	}
	e.strays = map[dispatcher.RunKey]time.Time{}
	var mine []dispatcher.HeldRun
	for _, run := range held {
		if e.pool.owns(run) {
			continue
		}
		missed, again := before[run.RunKey]
		switch {
		case !again:
			e.strays[run.RunKey] = now
		case now.Sub(missed) < e.opts.Handler:
			e.strays[run.RunKey] = missed
		default:
			mine = append(mine, run)
		}
	}
	if len(mine) > 0 {
		e.log.WarnContext(ctx, "runs reclaimed", "node", node.String(), "count", len(mine))
		e.pool.place(e.heldBy(node, mine), 0)
	}
	return nil
}

// settleBatch bounds what one statement settles: counting the missed fires of a trigger
// takes up to some milliseconds, and what was decided should not wait long to be stored.
const settleBatch = 100

// settle decides about every trigger that is later than its threshold: one catch-up run
// stands for all its missed fires.
func (e *Engine) settle(ctx context.Context, now time.Time) error {
	query := dispatcher.DueQuery{Apps: e.opts.Apps, Until: now, Overdue: true, Now: now}
	for query.Limit = e.awaitRoom(ctx, settleBatch); query.Limit > 0; query.Limit = e.awaitRoom(ctx, settleBatch) {
		page, err := e.store.Due(ctx, query)
		if err != nil || len(page) == 0 {
			e.pool.place(nil, query.Limit)
			return err
		}
		last := page[len(page)-1]
		page = slices.DeleteFunc(page, func(d dispatcher.DueTrigger) bool { return !e.opts.Labels.Have(d.NodeLabels) })
		missed, err := e.evaluate(ctx, page)
		if err != nil {
			e.pool.place(nil, query.Limit)
			return err
		}
		batch := dispatcher.SettleBatch{Node: e.fleet.id(), Token: dispatcher.Token(random63())}
		for i := range missed {
			batch.Settlements = append(batch.Settlements, missed[i].decide(now))
		}
		held, err := e.store.Settle(ctx, batch)
		if err != nil {
			held = e.reconcile(ctx, batch.Node, batch.Token, err)
		}
		e.metrics.misfires.Add(float64(len(batch.Settlements)))
		e.log.InfoContext(ctx, "misfires settled", "triggers", len(batch.Settlements), "catch_up_runs", len(held))
		e.pool.place(e.heldBy(batch.Node, held), query.Limit)
		// What follows the settled fires may be due before the next poll.
		wake(e.wakePoll)
		query.AfterTime, query.AfterID = last.DueAt, last.ID
	}
	return nil
}

// decide settles the missed fires of one trigger by fire_once. Instants so recent that
// jitter may not have let them be due yet are left to fire.
func (e *entry) decide(now time.Time) dispatcher.Settlement {
	until := now.Add(-e.Spec.Jitter)
	if until.Before(e.NextFireTime) {
		until = e.NextFireTime
	}
	last, count, next := dispatcher.Missed(e.schedule, e.NextFireTime, until)
	settlement := dispatcher.Settlement{
		Advance: e.advance(),
		To:      last, Count: count, CatchUp: last, Decision: dispatcher.DecisionFireOnce,
		Reason: fmt.Sprintf("not claimed within %s of %s", e.MisfireAfter, dispatcher.FormatInstant(e.DueAt)),
	}
	if next != nil {
		settlement.Then, settlement.ThenDue = *next, next.Add(e.schedule.Delay(*next))
	}
	return settlement
}

// adopt takes runs that nobody works on, as many as the pool has room for.
func (e *Engine) adopt(ctx context.Context) error { return e.adoptAll(ctx, dispatcher.AdoptQuery{}) }

// adoptAll takes runs of the kind that query asks for.
func (e *Engine) adoptAll(ctx context.Context, query dispatcher.AdoptQuery) error {
	query.Apps, query.Labels = e.opts.Apps, e.opts.Labels
	for room := e.awaitRoom(ctx, e.opts.Batch); room > 0; room = e.awaitRoom(ctx, e.opts.Batch) {
		query.Node, query.Token, query.Limit = e.fleet.id(), dispatcher.Token(random63()), room
		held, err := e.store.Adopt(ctx, query)
		if err != nil {
			held = e.reconcile(ctx, query.Node, query.Token, err)
		}
		if len(held) > 0 {
			e.log.DebugContext(ctx, "runs adopted", "node", query.Node.String(), "count", len(held), "retries", query.Retries)
			e.refresh(ctx, held)
		}
		e.pool.place(e.heldBy(query.Node, held), room)
		if len(held) < room {
			return nil
		}
	}
	return nil
}

// refresh reads the jobs of adopted runs anew: they may have been changed or deleted since
// this node cached them. If it fails, the attempt reads what the cache lacks.
func (e *Engine) refresh(ctx context.Context, held []dispatcher.HeldRun) {
	ids := map[int64]bool{}
	for _, run := range held {
		ids[run.JobID] = true
	}
	e.logIf(ctx, "read jobs of adopted runs", e.jobs.read(ctx, slices.Collect(maps.Keys(ids))))
}

// awaitRoom waits until the pool promises room, and returns for how many runs; 0 if the
// node may not claim.
func (e *Engine) awaitRoom(ctx context.Context, limit int) int {
	for ctx.Err() == nil && e.fleet.active() {
		if room := e.pool.reserve(limit); room > 0 {
			return room
		}
		sleep(ctx, leasePause)
	}
	return 0
}
