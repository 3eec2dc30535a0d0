package chores

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/engine/plan"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// Adopter adopts runs without a node, as far as the pool has room for them.
type Adopter struct {
	plan.Node
	Store  adoptStore
	Plan   *plan.Planner
	Claims *plan.Claims
	Pool   *pool.Pool[plan.Detail]
}

type adoptStore interface {
	Adoptable(ctx context.Context, query dispatcher.AdoptQuery) ([]dispatcher.Adoptable, error)
	Adopt(ctx context.Context, query dispatcher.AdoptQuery, runs []dispatcher.Adoptable) ([]run.HeldRun, error)
}

// Adoption is how far a node has looked for runs to adopt. A run without a place in the pool stays in the database as
// part of a backlog. The node first looks at runs that have become due since its last look, and then at a portion of
// the backlog. So a backlog of one job delays neither the runs of others nor other work of the node. In each portion
// the apps take turns. Each app continues after its last run, and begins again at its end.
type Adoption struct {
	query   dispatcher.AdoptQuery
	Wake    loop.Signal
	seen    time.Time                      // runs that were due by then are part of the backlog
	After   map[int64]dispatcher.Adoptable // the last run looked at, by app, for the apps with a backlog
	refused bool                           // a run of the backlog, so far, had no place
	Backlog bool                           // a run of it had none in the turn before
	Clogged atomic.Bool                    // to be woken when the pool has room
}

// NewAdoption returns an Adoption that has not looked yet. It wakes its loop by wake.
func NewAdoption(query dispatcher.AdoptQuery, wake loop.Signal) *Adoption {
	return &Adoption{query: query, Wake: wake, After: map[int64]dispatcher.Adoptable{}}
}

// backlogPages is the number of pages of one portion.
const backlogPages = 10

// Due adopts the runs that are due by now. Nothing is due before from; zero: unknown.
func (a *Adopter) Due(ctx context.Context, of *Adoption, from, now time.Time) error {
	query := of.query
	if of.Backlog || len(of.After) > 0 {
		query.From, query.After = of.seen, map[int64]dispatcher.Adoptable{}
		_, refused, err := a.adoptPages(ctx, query)
		if err != nil {
			return err
		}
		of.Backlog = of.Backlog || refused
	}
	of.seen = now
	maps.DeleteFunc(of.After, func(_ int64, last dispatcher.Adoptable) bool { return !last.More })
	query.From, query.After = from, of.After
	end, refused, err := a.adoptPages(ctx, query)
	of.refused = of.refused || refused
	of.Clogged.Store(of.refused || of.Backlog)
	switch {
	case err != nil:
	case end:
		clear(of.After)
		of.Backlog, of.refused = of.refused, false
	case !refused:
		of.Wake.Notify()
	}
	return err
}

// adoptPages adopts the runs of a query, page by page, and notes in it the last run of each app. end is true at the end
// of the query, and refused is true if some runs had no place.
func (a *Adopter) adoptPages(ctx context.Context, query dispatcher.AdoptQuery) (end, refused bool, err error) {
	for range backlogPages {
		loop.Turned(ctx)
		if may := ctx.Err() == nil && a.Fleet.Active(); !may {
			return true, refused, nil
		}
		query.Limit = a.Options.Batch
		page, err := a.Look(ctx, &query)
		if err != nil {
			return false, refused, err
		}
		places, full := a.Admit(page)
		a.Adopt(ctx, query, places)
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

// Admission is a run that may be adopted, and the queue of its place.
type Admission struct {
	dispatcher.Adoptable
	Queue  pool.QueueKey
	weight int
}

// Look returns runs that the node may adopt, with their current jobs.
func (a *Adopter) Look(ctx context.Context, query *dispatcher.AdoptQuery) ([]Admission, error) {
	query.Apps, query.Labels, query.Node = a.Options.Apps, a.Options.Labels, a.Fleet.ID()
	found, err := a.Store.Adoptable(ctx, *query)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	wanted := make(map[int64]int64, len(found))
	for _, run := range found {
		wanted[run.JobID] = run.Revision
	}
	jobs, err := a.Plan.Jobs.Load(ctx, wanted)
	if err != nil {
		return nil, err
	}
	page := make([]Admission, len(found))
	for i, run := range found {
		page[i] = Admission{Adoptable: run, Queue: pool.QueueKey{Job: run.JobID}}
		if job, ok := jobs[run.JobID]; ok {
			page[i].Queue, page[i].weight = job.Queue(), job.Bounds.Weight
		}
		page[i].Queue.Late = plan.CatchesUp(run.Kind)
	}
	return page, nil
}

// Admit takes places for runs, and returns the runs that have one. full is true if the pool has no place at all.
func (a *Adopter) Admit(page []Admission) (places []Admission, full bool) {
	for _, run := range page {
		switch a.Pool.Admit(run.Queue) {
		case pool.Admitted:
			places = append(places, run)
		case pool.PoolFull:
			return places, true
		}
	}
	return places, false
}

// Adopt adopts runs that have places, and gives back the places of those that were not won.
func (a *Adopter) Adopt(ctx context.Context, query dispatcher.AdoptQuery, places []Admission) {
	if len(places) == 0 {
		return
	}
	query.Token = a.Claims.Draw()
	defer a.Claims.Close(query.Token)
	runs, byKey := make([]dispatcher.Adoptable, len(places)), make(map[run.Key]Admission, len(places))
	for i, run := range places {
		runs[i], byKey[run.Key] = run.Adoptable, run
	}
	held, err := a.Store.Adopt(loop.WithoutCancel(ctx), query, runs)
	held = a.Claims.Won(ctx, query.Node, query.Token, held, err)
	won := a.Plan.HeldBy(query.Node, held)
	for _, run := range won {
		place := byKey[run.Key]
		run.Queue, run.Weight = place.Queue, place.weight
		delete(byKey, run.Key)
	}
	if len(held) > 0 {
		a.Log.DebugContext(ctx, "runs adopted", "node", query.Node.String(), "count", len(held), "retries", query.Retries)
	}
	a.Pool.Submit(won)
	a.GiveBack(slices.Collect(maps.Values(byKey)))
}

// GiveBack gives back the places of runs that were not adopted.
func (a *Adopter) GiveBack(places []Admission) {
	queues := make([]pool.QueueKey, len(places))
	for i := range places {
		queues[i] = places[i].Queue
	}
	a.Pool.Release(queues...)
}
