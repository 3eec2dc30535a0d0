package engine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// adoptLoop adopts runs that nobody works on, and schedules the next fire of fixed delays whose run
// ended without this node's knowledge. A notification wakes it at once; without one, nodes take turns.
func (e *Engine) adoptLoop(ctx context.Context) {
	e.everyTurn(ctx, "adopt", e.opts.Handler, e.wakeAdopt, e.turnToAdopt(e.opts.Handler), func(ctx context.Context, now time.Time) error {
		e.letNewerAdopt(ctx, 1)
		return errors.Join(e.adopt(ctx), e.scheduleNext(ctx, nil, now))
	})
}

// turnAdopt is how many nodes take turns to look for runs that no notification told of.
const turnAdopt = 3

// turnToAdopt returns whether it is this node's turn in an interval.
func (e *Engine) turnToAdopt(interval time.Duration) func(time.Time) bool {
	return func(now time.Time) bool {
		mine, _ := e.fleet.turn(now, interval, 0, turnAdopt)
		return mine
	}
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
	var mine []run.HeldRun
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
	e.submitMissed(ctx, node, mine, now)
	return nil
}

// reclaimInterval is how often a node looks for runs to reclaim without a reason to.
const reclaimInterval = time.Minute

// inDoubt reports whether the database may give to this node what the node does not have: a claim had no response a while
// ago, or a rollback was noticed or resolved.
func (e *Engine) inDoubt(now time.Time) bool {
	return now.Sub(time.UnixMilli(e.doubt.Load())) < e.opts.DeadAfter+2*e.opts.Handler
}

// reclaimInDoubt is reclaim, if there may be something to reclaim, or the round before missed a run.
func (e *Engine) reclaimInDoubt(ctx context.Context, now time.Time) error {
	if !e.inDoubt(now) && len(e.missing) == 0 && !passed(e.reclaimAt, now, reclaimInterval) {
		return nil
	}
	err := e.reclaim(ctx, now)
	if err == nil {
		e.reclaimAt = now
	}
	return err
}

// submitMissed submits runs that the node holds without knowing, as far as the pool has room for them. The others
// stay missing.
func (e *Engine) submitMissed(ctx context.Context, node run.NodeID, mine []run.HeldRun, now time.Time) {
	var admitted []*heldRun
	for _, run := range e.heldBy(node, mine) {
		if e.pool.Admit(run.Queue) == pool.Admitted {
			admitted = append(admitted, run)
		} else {
			e.missing[pool.KeyOf(run.HeldRun)] = now.Add(-e.opts.Handler)
		}
	}
	if len(admitted) > 0 {
		e.log.WarnContext(ctx, "runs reclaimed", "reason", "claim_committed_late", "node", node.String(), "count", len(admitted))
		e.pool.Submit(admitted)
	}
}

// adopt adopts runs that nobody works on, as far as the pool has room for them.
func (e *Engine) adopt(ctx context.Context) error {
	return e.adoptDue(ctx, e.idle, time.Time{}, e.clock.now())
}

// adoption is how far a node has looked for runs to adopt. A run without a place in the pool stays where it is. It
// is then part of a backlog, which the node goes through in turns, a portion at a time, and after what has become due
// since it last looked. So a backlog of one job delays neither the runs of others nor anything else that the node does.
// In each portion the apps take turns, and each app goes on from where it was, or begins again when it came to its end.
type adoption struct {
	query   dispatcher.AdoptQuery
	wake    chan<- struct{}
	seen    time.Time                      // what was due by then is part of the backlog
	after   map[int64]dispatcher.Adoptable // of apps whose backlog is looked through, the last run that was looked at
	refused bool                           // some of it, up to there, had no place
	backlog bool                           // some of it had none in the turn before
	clogged atomic.Bool                    // to be woken when the pool has room
}

func newAdoption(query dispatcher.AdoptQuery, wake chan<- struct{}) *adoption {
	return &adoption{query: query, wake: wake, after: map[int64]dispatcher.Adoptable{}}
}

// backlogPages is how many pages are looked through at once.
const backlogPages = 10

// adoptDue adopts the runs that are due by now. Nothing is due before from; zero: that is not known.
func (e *Engine) adoptDue(ctx context.Context, a *adoption, from, now time.Time) error {
	query := a.query
	if a.backlog || len(a.after) > 0 {
		query.From, query.After = a.seen, map[int64]dispatcher.Adoptable{}
		_, refused, err := e.adoptPages(ctx, query)
		if err != nil {
			return err
		}
		a.backlog = a.backlog || refused
	}
	a.seen = now
	maps.DeleteFunc(a.after, func(_ int64, last dispatcher.Adoptable) bool { return !last.More })
	query.From, query.After = from, a.after
	end, refused, err := e.adoptPages(ctx, query)
	a.refused = a.refused || refused
	a.clogged.Store(a.refused || a.backlog)
	switch {
	case err != nil:
	case end:
		clear(a.after)
		a.backlog, a.refused = a.refused, false
	case !refused:
		wake(a.wake)
	}
	return err
}

// adoptPages adopts the runs of a query, page by page, and notes in it how far it came with each app. It reports whether it
// came to the end, and whether some had no place.
func (e *Engine) adoptPages(ctx context.Context, query dispatcher.AdoptQuery) (end, refused bool, err error) {
	for range backlogPages {
		turned(ctx)
		if may := ctx.Err() == nil && e.fleet.active(); !may {
			return true, refused, nil
		}
		query.Limit = e.opts.Batch
		page, err := e.look(ctx, &query)
		if err != nil {
			return false, refused, err
		}
		places, full := e.admitted(page)
		e.adoptAdmitted(ctx, query, places)
		refused = refused || len(places) < len(page)
		if full || len(page) < query.Limit {
			return !full, refused, nil
		}
		for _, run := range page {
			query.After[run.AppID] = run.Adoptable
		}
	}
	return false, refused, nil
}

// admission is a run that may be adopted, and the queue in which it takes a place.
type admission struct {
	dispatcher.Adoptable
	queue  pool.QueueKey
	weight int
}

// look returns runs that the node may adopt, with the jobs as they are now.
func (e *Engine) look(ctx context.Context, query *dispatcher.AdoptQuery) ([]admission, error) {
	query.Apps, query.Labels, query.Node = e.opts.Apps, e.opts.Labels, e.fleet.id()
	found, err := e.store.Adoptable(ctx, *query)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	wanted := make(map[int64]int64, len(found))
	for _, run := range found {
		wanted[run.JobID] = run.Revision
	}
	jobs, err := e.jobs.load(ctx, wanted)
	if err != nil {
		return nil, err
	}
	page := make([]admission, len(found))
	for i, run := range found {
		page[i] = admission{Adoptable: run, queue: pool.QueueKey{Job: run.JobID}}
		if job, ok := jobs[run.JobID]; ok {
			page[i].queue, page[i].weight = job.queue(), job.Bounds.Weight
		}
		page[i].queue.Late = catchesUp(run.Kind)
	}
	return page, nil
}

// admitted takes places for runs, and returns those that have one. full tells that the pool has none at all.
func (e *Engine) admitted(page []admission) (places []admission, full bool) {
	for _, run := range page {
		switch e.pool.Admit(run.queue) {
		case pool.Admitted:
			places = append(places, run)
		case pool.PoolFull:
			return places, true
		}
	}
	return places, false
}

// adoptAdmitted adopts runs that have places, and gives back the places of those that were not won.
func (e *Engine) adoptAdmitted(ctx context.Context, query dispatcher.AdoptQuery, places []admission) {
	if len(places) == 0 {
		return
	}
	query.Token = e.tokens.draw()
	defer e.tokens.close(query.Token)
	runs, byKey := make([]dispatcher.Adoptable, len(places)), make(map[run.Key]admission, len(places))
	for i, run := range places {
		runs[i], byKey[run.Key] = run.Adoptable, run
	}
	held, err := e.store.Adopt(withoutCancel(ctx), query, runs)
	if err != nil {
		held = e.reconcile(ctx, query.Node, query.Token, err)
	}
	won := e.heldBy(query.Node, held)
	for _, run := range won {
		place := byKey[run.Key]
		run.Queue, run.Weight = place.queue, place.weight
		delete(byKey, run.Key)
	}
	if len(held) > 0 {
		e.log.DebugContext(ctx, "runs adopted", "node", query.Node.String(), "count", len(held), "retries", query.Retries)
	}
	e.pool.Submit(won)
	e.giveBack(slices.Collect(maps.Values(byKey)))
}

// giveBack gives back the places of runs that were not adopted.
func (e *Engine) giveBack(places []admission) {
	queues := make([]pool.QueueKey, len(places))
	for i := range places {
		queues[i] = places[i].queue
	}
	e.pool.Release(queues...)
}

// hasRoom is called when a pool that was full has places again.
func (e *Engine) hasRoom() {
	for _, a := range []*adoption{e.idle, e.retries.adoption} {
		if a.clogged.Load() {
			wake(a.wake)
		}
	}
}
