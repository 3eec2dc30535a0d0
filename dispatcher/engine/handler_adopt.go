package engine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
)

// adoptLoop adopts runs that nobody works on, and schedules the next fire of fixed delays whose run
// ended without this node's knowledge. A notification wakes it at once.
func (e *Engine) adoptLoop(ctx context.Context) {
	e.every(ctx, "adopt", e.opts.Handler, e.wakeAdopt, func(ctx context.Context, now time.Time) error {
		e.letNewerAdopt(ctx, 1)
		return errors.Join(e.adopt(ctx), e.scheduleNext(ctx, nil, now))
	})
}

// reclaim executes runs that the database gives to this node and that the node does not have: their
// claim was committed after the node had given up its response and looked for it. A run that is
// missing now may be on its way to the pool; one that is still missing an interval later is not.
// After a rollback the node may have executed them already, so that is for the operator to choose.
func (e *Engine) reclaim(ctx context.Context, now time.Time) error {
	if e.fleet.awaitsRollbackChoice() {
		return nil
	}
	node, before := e.fleet.id(), e.missing
	held, err := e.store.Held(ctx, node, 0)
	if err != nil {
		return err
	}
	e.missing = map[pool.AttemptKey]time.Time{}
	var mine []dispatcher.HeldRun
	for _, run := range held {
		// In this order: a token is closed after its runs are in the pool.
		if e.tokens.isOpen(run.Token) || e.pool.Owns(run) {
			continue
		}
		since, again := before[pool.KeyOf(run)]
		switch {
		case !again:
			e.missing[pool.KeyOf(run)] = now
		case now.Sub(since) < e.opts.Handler:
			e.missing[pool.KeyOf(run)] = since
		default:
			mine = append(mine, run)
		}
	}
	if len(mine) > 0 {
		e.log.WarnContext(ctx, "runs reclaimed", "reason", "claim_committed_late", "node", node.String(), "count", len(mine))
		e.pool.Enqueue(e.heldBy(node, mine), pool.Reservation{})
	}
	return nil
}

// adopt adopts runs that nobody works on, as many as the pool has room for.
func (e *Engine) adopt(ctx context.Context) error { return e.adoptAll(ctx, dispatcher.AdoptQuery{}) }

// adoptAll adopts the runs that query asks for.
func (e *Engine) adoptAll(ctx context.Context, query dispatcher.AdoptQuery) error {
	query.Apps, query.Labels = e.opts.Apps, e.opts.Labels
	for {
		room := e.waitForRoom(ctx, e.opts.Batch, false)
		if room.Places == 0 {
			return nil
		}
		query.Node, query.Token, query.Limit = e.fleet.id(), e.tokens.draw(), room.Places
		held, err := e.store.Adopt(withoutCancel(ctx), query)
		if err != nil {
			held = e.reconcile(ctx, query.Node, query.Token, err)
		}
		if len(held) > 0 {
			e.log.DebugContext(ctx, "runs adopted", "node", query.Node.String(), "count", len(held), "retries", query.Retries)
			e.refresh(ctx, held)
		}
		e.pool.Enqueue(e.heldBy(query.Node, held), room)
		e.tokens.close(query.Token)
		if len(held) < room.Places {
			return nil
		}
	}
}

// refresh reads the jobs of adopted runs again: they may have been changed or deleted since this
// node cached them. If it fails, the attempt reads what the cache lacks.
func (e *Engine) refresh(ctx context.Context, held []dispatcher.HeldRun) {
	ids := map[int64]bool{}
	for _, run := range held {
		ids[run.JobID] = true
	}
	e.logIf(ctx, "read jobs of adopted runs", e.jobs.read(ctx, slices.Collect(maps.Keys(ids))))
}

// waitForRoom waits until the pool has places, limit at most, and reserves them; late: in its part
// for catching up. The reservation is empty if the node may not claim.
func (e *Engine) waitForRoom(ctx context.Context, limit int, late bool) pool.Reservation {
	for ctx.Err() == nil && e.fleet.active() {
		turned(ctx)
		if room := e.pool.Reserve(limit, late); room.Places > 0 {
			return room
		}
		sleep(ctx, leasePause)
	}
	return pool.Reservation{}
}
