package store_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// openForRequests opens a database with connections for requests.
func openForRequests(t *testing.T, database string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), database, store.Options{Options: db.Options{Requests: true}})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

// flood makes many calls at once, one after the other, until the test or end ends. It returns once they are under way.
func flood(t *testing.T, call func(ctx context.Context) error) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for range 30 {
		group.Go(func() {
			for ctx.Err() == nil {
				_ = call(ctx) // which fails while the table is locked
			}
		})
	}
	return func() { cancel(); group.Wait() }
}

// T12: requests that wait for a lock took all connections, those of claims and of the handler too.
func TestRequestsTakeNoConnectionOfClaims(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	must(t, ownClaims(t, database, 3).Close())
	s := openForRequests(t, database)
	due, err := s.Due(t.Context(), dispatcher.DueQuery{Until: may1.Add(time.Hour), Now: may1, Limit: 1000})
	must(t, err)
	lock := meanwhileIn(t, database)
	// The flood reads misfires and triggers, which a claim does not.
	_, err = lock.Exec(t.Context(), `LOCK TABLE misfires, triggers IN ACCESS EXCLUSIVE MODE`)
	must(t, err)
	requests := s.ForRequests()
	endMisfires := flood(t, func(ctx context.Context) error {
		_, err := requests.Misfires(ctx, dispatcher.RunQuery{App: "app", Page: input.Page{Limit: 10}})
		return err
	})
	endJobs := flood(t, func(ctx context.Context) error {
		_, err := requests.Jobs(ctx, "app", input.Page{Limit: 10})
		return err
	})
	const waiting = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`
	other := open(t, database)
	for count(t, other, waiting) < 2 {
	}
	for round := range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit) // the requests wait for longer: for the lock
		batch := dispatcher.ClaimBatch{Node: claimer, Token: run.Token(round + 1), Now: may1.Add(time.Hour)}
		batch.Advances = append(batch.Advances, dispatcher.Advance{
			TriggerID: due[round].ID, JobID: run.JobID("app", "job"), Revision: due[round].Revision,
			Prev: due[round].PrevFireTime, Next: due[round].NextFireTime, Then: due[round].NextFireTime.Add(time.Minute),
		})
		if held, err := s.Claim(ctx, batch); err != nil || len(held) != 1 {
			t.Errorf("claim %d during the flood: %d runs, error %v, want one", round, len(held), err)
		}
		if locks, err := s.Lock(ctx, dispatcher.LockRequest{Node: claimer, Names: []string{dispatcher.LockStates},
			AtMost: time.Millisecond}); err != nil {
			t.Errorf("lock %d during the flood: %v, error %v", round, locks, err)
		}
		cancel()
	}
	must(t, lock.Rollback(t.Context()))
	endMisfires()
	endJobs()
	if jobs, err := requests.Jobs(t.Context(), "app", input.Page{Limit: 10}); err != nil || len(jobs) != 1 {
		t.Errorf("after the flood: %d jobs, error %v, want one", len(jobs), err)
	}
}

// SQLite has one connection that writes. Of the requests that wait for it, one at most is served before a claim.
func TestClaimWaitsForOneRequestOnSQLite(t *testing.T) {
	t.Parallel()
	database := newFile(t)
	s := openForRequests(t, database)
	must(t, s.Register(t.Context(), dispatcher.Node{ID: claimer}, may1))
	requests := s.ForRequests()
	release, err := store.Freeze(t.Context(), s, `UPDATE installation SET id = id`)
	must(t, err)
	var written, asked atomic.Int64
	end := flood(t, func(ctx context.Context) error {
		app := access.App{Name: "app", AppSpec: access.AppSpec{Description: fmt.Sprint("change ", asked.Add(1)), Enabled: true}}
		_, _, err := requests.PutApp(ctx, app, input.Change{Actor: "test"})
		if err == nil {
			written.Add(1)
		}
		return err
	})
	for store.Writers(s) < 1 {
	}
	locked := make(chan error, 1)
	before := make(chan int64, 1)
	go func() {
		_, err := s.Lock(t.Context(), dispatcher.LockRequest{Node: claimer, Names: []string{dispatcher.LockStates}, AtMost: time.Second})
		before <- written.Load()
		locked <- err
	}()
	for store.Writers(s) < 2 {
	}
	release()
	must(t, <-locked)
	if n := <-before; n > 3 { // some may have been written since
		t.Errorf("%d requests wrote before the engine, want one or two", n)
	}
	end()
}
