package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

const (
	// backfilledInstants run next to steadyRate fires a second, at most backfillConcurrency at once.
	backfilledInstants  = 100_000
	backfillConcurrency = 200
	// backfillPatience bounds the duration of the backfill.
	backfillPatience = 20 * time.Minute
)

// recovering is how long after a kill the fires of the killed node may still be late. Other nodes claim them
// two seconds late until the node counts as dead, which takes a minute. The killed node's runs in flight are
// adopted when a handler, whose turn comes after 15 seconds, and a poll have found them.
const recovering = 85 * time.Second

// backfill measures how late the fires of a job are next to a backfill of another, while one of two nodes is killed in
// the middle, and whether each scheduled time has one successful run. The ratio is to the lateness before the backfill.
// It excludes fires that are late because of the kill, with or without a backfill: the worst of these is the recovery.
func (b *bench) backfill(ctx context.Context) error {
	if b.pool == nil {
		return errors.New("SQLite has one node, and one is killed; give a PostgreSQL database")
	}
	if err := b.declareSteadyAndPast(ctx); err != nil {
		return err
	}
	s, err := store.Open(ctx, b.database, store.Options{Options: db.Options{AlongsideNode: true}})
	if err != nil {
		return err
	}
	defer s.Close()
	stays, err := b.startProcess(ctx, 1)
	if err != nil {
		return err
	}
	defer func() { _ = stays.end() }() // its report was read before that
	dies, err := b.startProcess(ctx, 1)
	if err != nil {
		return err
	}
	defer func() { _ = dies.kill() }()                                    // already dead, unless an error came first
	if _, err := latenciesAfter(ctx, settling, stays, dies); err != nil { // drop those of the start
		return err
	}
	before, err := latenciesAfter(ctx, b.Time, stays, dies)
	if err != nil {
		return err
	}
	begun := time.Now()
	id, err := b.beginBackfill(ctx, s)
	if err != nil {
		return err
	}
	if _, err := b.awaitBackfill(ctx, s, id, b.Instants/2); err != nil {
		return err
	}
	during, err := latenciesAfter(ctx, 0, stays, dies)
	if err != nil {
		return err
	}
	if err := dies.kill(); err != nil {
		return err
	}
	killed, err := latenciesAfter(ctx, recovering, stays)
	if err != nil {
		return err
	}
	ended, err := b.awaitBackfill(ctx, s, id, b.Instants)
	if err != nil {
		return err
	}
	took := time.Since(begun)
	after, err := latenciesAfter(ctx, 0, stays)
	if err != nil {
		return err
	}
	during = append(during, after...)
	slices.Sort(during)
	r := Result{Bench: "backfill", Database: b.kind, Unit: "instants/s", Value: float64(ended.Succeeded) / took.Seconds(),
		Missing: some(b.Instants - ended.Succeeded), P99Ratio: some(during.at(0.99) / before.at(0.99)), Recovery: some(killed.at(1))}
	r.lateness(during)
	return b.Report(r)
}

// declareSteadyAndPast declares a job with steadyRate fires a second, and one for the backfill. Their calls do nothing.
func (b *bench) declareSteadyAndPast(ctx context.Context) error {
	none := func(int) target.Target { return webhookTo("http://127.0.0.1:1/") }
	start := nextSecond(-time.Minute)
	for _, d := range []declaration{
		{app: "steady", triggers: steadyRate, perJob: dispatcher.MaxTriggers, target: none, schedule: spread(steadyRate), start: start},
		{app: "past", triggers: 1, perJob: 1, target: none, start: start, schedule: func(int, time.Time) dispatcher.Schedule {
			return dispatcher.Schedule{Expression: "0 * * * * ?"}
		}},
	} {
		if err := declare(ctx, b.database, d); err != nil {
			return err
		}
	}
	return nil
}

// latenciesAfter waits, and returns how late the fires of some processes were since their previous report.
func latenciesAfter(ctx context.Context, wait time.Duration, processes ...*process) (all latencies, err error) {
	if err := pause(ctx, wait); err != nil {
		return nil, err
	}
	for _, p := range processes {
		r, err := p.report()
		if err != nil {
			return nil, err
		}
		all = append(all, r.Latencies...)
	}
	slices.Sort(all)
	return all, nil
}

// beginBackfill starts a backfill of a job that fires each minute.
func (b *bench) beginBackfill(ctx context.Context, s *store.Store) (id string, err error) {
	to := time.Now().UTC().Truncate(time.Minute).Add(-time.Hour)
	spec := repeat.BackfillSpec{From: to.Add(-time.Duration(b.Instants-1) * time.Minute), To: to, Concurrency: backfillConcurrency,
		Pace: input.Duration(b.Pace), Order: repeat.BackfillOldestFirst, Existing: repeat.ExistingSkip}
	job, err := s.Job(ctx, "past", "job-0")
	if err != nil {
		return "", err
	}
	plan, err := spec.Plan(ctx, job, nil)
	if err != nil {
		return "", err
	}
	started, err := s.CreateBackfill(ctx, "past", job.Name, plan, byBench)
	return started.ID, err
}

// awaitBackfill waits until so many runs of a backfill have succeeded, or until it has ended.
func (b *bench) awaitBackfill(ctx context.Context, s *store.Store, id string, runs int) (f repeat.Backfill, err error) {
	for patience := time.Now().Add(backfillPatience); time.Now().Before(patience); {
		if f, err = s.Backfill(ctx, "past", id); err != nil || f.State.Ended() || f.Succeeded >= runs && runs < b.Instants {
			return f, err
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return f, err
		}
	}
	return f, fmt.Errorf("backfill %s: %d of %d instants after %s", id, f.Succeeded, b.Instants, backfillPatience)
}
