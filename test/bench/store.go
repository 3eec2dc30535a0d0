package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// store measures claims, which insert their runs, and records, through the store alone, by number
// of triggers and batch size.
func (b *bench) store(ctx context.Context) error {
	sizes := []struct{ triggers, batch int }{{20_000, 500}, {20_000, 1}, {20_000, 50}, {20_000, 1000}, {100_000, 500}}
	part := *b
	part.Time = b.Time / time.Duration(len(sizes))
	for i, size := range sizes {
		// Each size has its own tables.
		if i == 0 || size.triggers != sizes[i-1].triggers {
			app := fmt.Sprintf("of-%d", size.triggers)
			if err := declare(ctx, b.database, idleJobs(app, size.triggers)); err != nil {
				return err
			}
		}
		if err := part.storeOf(ctx, size.triggers, size.batch); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) storeOf(ctx context.Context, triggers, batch int) error {
	bare, err := b.newBareSQL(ctx, triggers)
	if err != nil {
		return err
	}
	defer bare.close()
	c, err := newClaimers(ctx, b.space, fmt.Sprintf("of-%d", triggers))
	if err != nil {
		return err
	}
	defer c.store.Close()
	r := Result{Bench: "store", Triggers: some(triggers), Batch: some(batch)}
	if err := b.compare(ctx, &r, c.measure(batch), ceilings{sql: bare.measure}); err != nil {
		return err
	}
	if triggers == 20_000 && batch == 500 { // as in the figures of written.fill
		if err := b.compareWritten(ctx, &r, c.measure(batch), bare.measure); err != nil {
			return err
		}
	}
	return b.Report(r)
}

// idleJobs fire each second, starting tomorrow.
func idleJobs(app string, triggers int) declaration {
	return declaration{app: app, triggers: triggers, perJob: dispatcher.MaxTriggers, target: to("http://127.0.0.1"),
		start: nextSecond(24 * time.Hour), schedule: everySecond}
}

// claimers claim and record the triggers of an app from two connections, each with its own share;
// SQLite has one writer.
type claimers struct {
	store *store.Store
	node  run.NodeID
	own   []claimer
	jobs  map[int64]int64 // by trigger
}

type claimer struct {
	due []dispatcher.DueTrigger
	at  int
}

// jobsOf returns the jobs of triggers.
func jobsOf(ctx context.Context, s *store.Store, due []dispatcher.DueTrigger) (map[int64]int64, error) {
	ids := make([]int64, len(due))
	for i := range due {
		ids[i] = due[i].ID
	}
	versions, err := s.TriggersByID(ctx, ids)
	jobs := make(map[int64]int64, len(due))
	for i := range versions {
		jobs[versions[i].ID] = versions[i].JobID
	}
	return jobs, err
}

func newClaimers(ctx context.Context, s *space, app string) (*claimers, error) {
	c := &claimers{node: run.NodeID(rand.Int64()), own: make([]claimer, 2), jobs: map[int64]int64{}}
	if s.pool == nil {
		c.own = c.own[:1]
	}
	var err error
	if c.store, err = store.Open(ctx, s.database, store.Options{Options: db.Options{MaxConns: len(c.own)}}); err != nil {
		return nil, err
	}
	if err := c.store.Register(ctx, dispatcher.Node{ID: c.node}, time.Time{}); err != nil {
		return nil, err
	}
	far := time.Now().Add(48 * time.Hour)
	query := dispatcher.DueQuery{Apps: []string{app}, Until: far, Limit: 1000}
	for n := 0; ; {
		page, err := c.store.Due(ctx, query)
		if err != nil {
			return nil, err
		}
		jobs, err := jobsOf(ctx, c.store, page)
		if err != nil {
			return nil, err
		}
		maps.Copy(c.jobs, jobs)
		for _, d := range page {
			own := &c.own[n%len(c.own)]
			own.due = append(own.due, d)
			n++
		}
		if len(page) < query.Limit {
			return c, nil
		}
		last := page[len(page)-1]
		query.AfterTime, query.AfterID = last.DueAt, last.ID
	}
}

// measure claims and records in batches of a size.
func (c *claimers) measure(size int) measure {
	return func(ctx context.Context, span time.Duration) (float64, error) {
		return together(len(c.own), span, func(g int, until time.Time) (done int, err error) {
			for own := &c.own[g]; time.Now().Before(until); done += size {
				if own.at+size > len(own.due) {
					own.at = 0
				}
				if err := c.claimAndRecord(ctx, own.due[own.at:own.at+size]); err != nil {
					return done, err
				}
				own.at += size
			}
			return done, nil
		})
	}
}

// claimAndRecord fires triggers without a target, and moves them to their next fire.
func (c *claimers) claimAndRecord(ctx context.Context, due []dispatcher.DueTrigger) error {
	batch := dispatcher.ClaimBatch{Node: c.node, Token: run.Token(rand.Int64() | 1), Advances: make([]dispatcher.Advance, len(due))}
	for i := range due {
		d := &due[i]
		then := d.NextFireTime.Add(time.Second)
		batch.Advances[i] = dispatcher.Advance{
			TriggerID: d.ID, JobID: c.jobs[d.ID], Revision: d.Revision, Prev: d.PrevFireTime, Next: d.NextFireTime, Then: then, ThenDue: then,
		}
		if d.DueAt.After(batch.Now) {
			batch.Now = d.DueAt
		}
		d.PrevFireTime, d.NextFireTime, d.DueAt = d.NextFireTime, then, then
	}
	held, err := c.store.Claim(ctx, batch)
	if err != nil {
		return err
	}
	if len(held) != len(due) {
		return fmt.Errorf("%d of %d fires won", len(held), len(due))
	}
	records := make([]dispatcher.Record, len(held))
	for i, r := range held {
		records[i] = dispatcher.Record{
			Key: r.Key, JobID: r.JobID, Revision: r.Revision, ClaimedAt: r.ClaimedAt, Node: c.node, Token: r.Token,
			Attempt: r.Attempt, Outcome: run.Outcome{
				State: run.Succeeded, StartedAt: r.ScheduledAt, EndedAt: r.ScheduledAt.Add(time.Millisecond), HTTPStatus: 200,
			},
		}
	}
	return c.store.Record(ctx, records)
}
