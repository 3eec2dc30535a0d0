package engine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// adoptLoop takes runs that nobody works on, and arms fixed delays that a run left behind
// without its node, at once when a hint says that there may be some.
func (e *Engine) adoptLoop(ctx context.Context) {
	e.every(ctx, "adopt", e.opts.Handler, e.wakeAdopt, func(ctx context.Context, now time.Time) error {
		return errors.Join(e.adopt(ctx), e.scheduleNext(ctx, nil, now))
	})
}

// reclaim executes runs that the database gives to this node and that the node does not
// have: those of a claim that was committed after its response had been given up and after
// reconcile had looked. What is missing may be on its way to the pool; what is still
// missing an interval later is not. After a rollback it may have executed them already: that is for
// the operator to choose.
func (e *Engine) reclaim(ctx context.Context, now time.Time) error {
	if e.fleet.stranded() {
		return nil
	}
	node, before := e.fleet.id(), e.strays
	held, err := e.store.Held(ctx, node, 0)
	if err != nil {
		return err
	}
	e.strays = map[attemptKey]time.Time{}
	var mine []dispatcher.HeldRun
	for _, run := range held {
		// In this order: who closes its token has placed its runs.
		if e.tokens.isOpen(run.Token) || e.pool.owns(run) {
			continue
		}
		missed, again := before[keyOf(run)]
		switch {
		case !again:
			e.strays[keyOf(run)] = now
		case now.Sub(missed) < e.opts.Handler:
			e.strays[keyOf(run)] = missed
		default:
			mine = append(mine, run)
		}
	}
	if len(mine) > 0 {
		e.log.WarnContext(ctx, "runs reclaimed", "node", node.String(), "count", len(mine))
		e.pool.place(e.heldBy(node, mine), promise{})
	}
	return nil
}

// adopt takes runs that nobody works on, as many as the pool has room for.
func (e *Engine) adopt(ctx context.Context) error { return e.adoptAll(ctx, dispatcher.AdoptQuery{}) }

// adoptAll takes runs of the kind that query asks for.
func (e *Engine) adoptAll(ctx context.Context, query dispatcher.AdoptQuery) error {
	query.Apps, query.Labels = e.opts.Apps, e.opts.Labels
	for room := e.awaitRoom(ctx, e.opts.Batch, false); room > 0; room = e.awaitRoom(ctx, e.opts.Batch, false) {
		query.Node, query.Token, query.Limit = e.fleet.id(), e.tokens.draw(), room
		held, err := e.store.Adopt(uncut(ctx), query)
		if err != nil {
			held = e.reconcile(ctx, query.Node, query.Token, err)
		}
		if len(held) > 0 {
			e.log.DebugContext(ctx, "runs adopted", "node", query.Node.String(), "count", len(held), "retries", query.Retries)
			e.refresh(ctx, held)
		}
		e.pool.place(e.heldBy(query.Node, held), promise{any: room})
		e.tokens.close(query.Token)
		if len(held) < room {
			return nil
		}
	}
	return nil
}

// refresh reads the jobs of adopted runs again: they may have been changed or deleted since
// this node cached them. If it fails, the attempt reads what the cache lacks.
func (e *Engine) refresh(ctx context.Context, held []dispatcher.HeldRun) {
	ids := map[int64]bool{}
	for _, run := range held {
		ids[run.JobID] = true
	}
	e.logIf(ctx, "read jobs of adopted runs", e.jobs.read(ctx, slices.Collect(maps.Keys(ids))))
}

// awaitRoom waits until the pool promises room, in its part for catching up if late, and returns
// for how many runs; 0 if the node may not claim.
func (e *Engine) awaitRoom(ctx context.Context, limit int, late bool) int {
	for ctx.Err() == nil && e.fleet.active() {
		if room := e.pool.reserve(limit, late); room > 0 {
			return room
		}
		sleep(ctx, leasePause)
	}
	return 0
}
