package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// batchSize is the number of fires in the measured claims, records and retries.
const batchSize = 100

// bench is a store on one database, with its own node and the data to measure costs.
type bench struct {
	*database
	store *store.Store
	node  run.NodeID
	apps  []string
	due   []dispatcher.DueTrigger // of an app, in turns
	jobs  map[int64]int64         // their jobs
	at    int
	held  [][]run.HeldRun // batches that a step left for the next
	floor time.Time       // earliest due time of a punctual fire
}

// openBench opens a store, registers a node and reads the triggers of an app. connections 0 means a node's number.
func (d *database) openBench(ctx context.Context, app string, connections int) (*bench, error) {
	s, err := store.Open(ctx, d.url, store.Options{Options: db.Options{MaxConns: connections}})
	if err != nil {
		return nil, err
	}
	b := &bench{database: d, store: s, node: run.NodeID(rand.Int64() | 1), apps: []string{app}, jobs: map[int64]int64{}}
	if err := b.prepare(ctx, app); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return b, nil
}

func (b *bench) prepare(ctx context.Context, app string) error {
	if err := b.store.Register(ctx, dispatcher.Node{ID: b.node, Name: "soak", Version: "soak"}, time.Time{}); err != nil {
		return err
	}
	query := dispatcher.DueQuery{Apps: b.apps, Until: time.Now().Add(48 * time.Hour), Limit: 1000}
	for more := true; more; {
		page, err := b.store.Due(ctx, query)
		if err != nil {
			return err
		}
		b.due = append(b.due, page...)
		if more = len(page) == query.Limit; more {
			last := page[len(page)-1]
			query.AfterTime, query.AfterID = last.DueAt, last.ID
		}
	}
	ids := make([]int64, len(b.due))
	for i := range b.due {
		ids[i] = b.due[i].ID
	}
	versions, err := b.store.TriggersByID(ctx, ids)
	if err != nil {
		return err
	}
	for i := range versions {
		b.jobs[versions[i].ID] = versions[i].JobID
	}
	if len(b.due) < batchSize {
		return fmt.Errorf("app %s has %d triggers that are due, which is less than a batch of %d", app, len(b.due), batchSize)
	}
	return nil
}

// leave deregisters the node.
func (b *bench) leave(ctx context.Context) error {
	return errors.Join(b.store.Deregister(ctx, b.node), b.store.Close())
}

// claim fires the next batch of triggers, and moves each by a duration.
func (b *bench) claim(ctx context.Context, size int, by time.Duration) error {
	if b.at+size > len(b.due) {
		b.at = 0
	}
	batch := dispatcher.ClaimBatch{Node: b.node, Token: run.Token(rand.Int64() | 1)}
	for i := range b.due[b.at : b.at+size] {
		d := &b.due[b.at+i]
		then := d.NextFireTime.Add(by)
		batch.Advances = append(batch.Advances, dispatcher.Advance{
			TriggerID: d.ID, JobID: b.jobs[d.ID], Revision: d.Revision, Prev: d.PrevFireTime, Next: d.NextFireTime, Then: then, ThenDue: then,
		})
		if d.DueAt.After(batch.Now) {
			batch.Now = d.DueAt
		}
		d.PrevFireTime, d.NextFireTime, d.DueAt = d.NextFireTime, then, then
	}
	b.at += size
	held, err := b.store.Claim(ctx, batch)
	if err != nil {
		return err
	}
	if len(held) != size {
		return fmt.Errorf("%d of %d fires won", len(held), size)
	}
	b.held = append(b.held, held)
	return nil
}

// record ends a batch of runs in flight: for good, or for another attempt now.
func (b *bench) record(ctx context.Context, again bool) error {
	if len(b.held) == 0 {
		return errors.New("nothing is held")
	}
	batch := b.held[0]
	b.held = b.held[1:]
	records := make([]dispatcher.Record, len(batch))
	for i, r := range batch {
		now := time.Now().UTC().Truncate(time.Millisecond)
		records[i] = dispatcher.Record{
			Key: r.Key, JobID: r.JobID, Revision: r.Revision, ClaimedAt: r.ClaimedAt, Node: b.node, Token: r.Token,
			Attempt: r.Attempt,
			Outcome: run.Outcome{State: run.Succeeded, StartedAt: now.Add(-time.Millisecond), EndedAt: now, HTTPStatus: 200},
		}
		if again {
			records[i].Outcome.State, records[i].Outcome.Class, records[i].Outcome.HTTPStatus = run.Failed, run.ClassHTTP5xx, 503
			records[i].Next = &dispatcher.NextAttempt{At: now.Add(-time.Second), Until: now.Add(time.Hour), CountsAsFailure: true}
		}
	}
	return b.store.Record(ctx, records)
}

// retry adopts a batch of runs that wait for another attempt.
func (b *bench) retry(ctx context.Context) error {
	held, err := b.adopt(ctx, dispatcher.AdoptQuery{
		Apps: b.apps, Node: b.node, Token: run.Token(rand.Int64() | 1), Limit: batchSize, Retries: true,
	})
	if err == nil && len(held) != batchSize {
		err = fmt.Errorf("%d of %d retries adopted", len(held), batchSize)
	}
	b.held = append(b.held, held)
	return err
}

// adopt takes runs like a node.
func (b *bench) adopt(ctx context.Context, query dispatcher.AdoptQuery) ([]run.HeldRun, error) {
	runs, err := b.store.Adoptable(ctx, query)
	if err != nil || len(runs) == 0 {
		return nil, err
	}
	return b.store.Adopt(ctx, query, runs)
}

// emptyAdoption looks for runs without a live node, or for due retries, and finds none. It looks
// like a node ten minutes later: by then, dead nodes are known to have no runs left, and a look for
// retries begins half a minute earlier, if nothing earlier is left.
func (b *bench) emptyAdoption(ctx context.Context, retries bool) error {
	query := dispatcher.AdoptQuery{
		Apps: b.apps, Node: b.node, Token: run.Token(rand.Int64() | 1), Limit: batchSize, Retries: retries,
		Now: time.Now().Add(10 * time.Minute),
	}
	if retries {
		query.From = query.Now.Add(-30 * time.Second)
	}
	held, err := b.adopt(ctx, query)
	if err == nil && len(held) > 0 {
		err = fmt.Errorf("%d runs were to be adopted, want none", len(held))
	}
	return err
}

// poll reads the due triggers of a window, like a single node.
func (b *bench) poll(ctx context.Context) error {
	_, err := b.window(ctx, dispatcher.DueQuery{From: b.floor, Until: time.Now().Add(6 * time.Second), Limit: 5000})
	return err
}

// sweep looks for triggers that other nodes have left.
func (b *bench) sweep(ctx context.Context) error {
	_, err := b.window(ctx, dispatcher.DueQuery{From: b.floor, Until: time.Now().Add(-time.Second), Limit: 5000})
	return err
}

// window reads all pages of a query.
func (b *bench) window(ctx context.Context, query dispatcher.DueQuery) (n int, err error) {
	for {
		page, err := b.store.Due(ctx, query)
		if err != nil {
			return n, err
		}
		if n += len(page); len(page) < query.Limit {
			return n, nil
		}
		last := page[len(page)-1]
		query.AfterTime, query.AfterID = last.DueAt, last.ID
	}
}

// step is one cost.
type step struct {
	name string
	do   func(*bench, context.Context) error
}

// steps are the costs in order: a claim comes before the record of its runs.
func steps() []step {
	again := func(b *bench, ctx context.Context) error { return b.record(ctx, true) }
	end := func(b *bench, ctx context.Context) error { return b.record(ctx, false) }
	claim := func(b *bench, ctx context.Context) error { return b.claim(ctx, batchSize, time.Second) }
	return []step{
		{"poll", (*bench).poll}, {"sweep", (*bench).sweep},
		{"empty_adoption", func(b *bench, ctx context.Context) error { return b.emptyAdoption(ctx, false) }},
		{"empty_retry", func(b *bench, ctx context.Context) error { return b.emptyAdoption(ctx, true) }},
		{"claim", claim}, {"record", end},
		{"claim_failing", claim}, {"record_failure", again}, {"retry", (*bench).retry}, {"record_retried", end},
		{"roll_up", (*bench).rollUp},
	}
}

// rolledUp is the number of jobs in a measured roll-up: no more than the young database has.
const rolledUp = 10

// rollUp computes the states of a page of jobs.
func (b *bench) rollUp(ctx context.Context) error {
	_, err := b.store.RollUp(ctx, rolledUp)
	return err
}

// measureCosts measures each cost in turns in both databases, while no fleet runs: first the time,
// then the number of blocks read.
func (w *world) measureCosts(ctx context.Context) error {
	if err := w.quiet(ctx); err != nil {
		return err
	}
	// The second part opens separate stores: connections of the first report their reads up to ten
	// seconds late, but not after their end.
	return errors.Join(w.measureTimes(ctx), w.measureBlocks(ctx))
}

// measureTimes measures the time of each cost in turns.
func (w *world) measureTimes(ctx context.Context) (err error) {
	took := map[string][2][]float64{}
	var benches [2]*bench
	for i, d := range w.both() {
		b, err := d.openBench(ctx, probe, 0)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.leave(ctx)) }()
		if b.floor, err = w.setDueOnly(ctx, d); err != nil {
			return err
		}
		if err := b.takeLeft(ctx); err != nil {
			return err
		}
		benches[i] = b
	}
	for round := range w.rounds + 1 { // the first fills caches
		for _, step := range steps() {
			for i, b := range benches {
				begun := time.Now()
				if err := step.do(b, ctx); err != nil {
					return fmt.Errorf("%s in the %s database: %w", step.name, b.name, err)
				}
				if values := took[step.name]; round > 0 {
					values[i] = append(values[i], milliseconds(time.Since(begun)))
					took[step.name] = values
				}
			}
		}
	}
	for _, step := range steps() {
		w.figures.inTurns(step.name, "ms", took[step.name][0], took[step.name][1])
	}
	return w.adoptionLocks(ctx, benches)
}

// takeLeft adopts the runs that the fleet left when it stopped, and due retries, so that later
// adoptions find nothing.
func (b *bench) takeLeft(ctx context.Context) error {
	for _, retries := range []bool{false, true} {
		for more := true; more; {
			held, err := b.adopt(ctx, dispatcher.AdoptQuery{
				Node: b.node, Token: run.Token(rand.Int64() | 1), Limit: 1000, Retries: retries,
			})
			if err != nil {
				return err
			}
			more = len(held) > 0
		}
	}
	return nil
}
