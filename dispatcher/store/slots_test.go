package store_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// boundedJob declares a job of which one run at a time may execute, and requests and adopts a run.
func boundedJob(t *testing.T, s *store.Store, name string, token run.Token) run.HeldRun {
	t.Helper()
	change := input.Change{Actor: "test", Now: may1}
	job := tick(name, "", may1)
	job.ConcurrencyPolicy = run.ConcurrencyQueue
	_, _, err := s.PutJob(t.Context(), job, change)
	must(t, err)
	_, err = s.RequestRun(t.Context(), "app", name, nil, change)
	must(t, err)
	held, err := adopt(t.Context(), s, dispatcher.AdoptQuery{Node: claimer, Token: token, Limit: 10, Now: may1})
	must(t, err)
	if len(held) != 1 {
		t.Fatalf("adopted %d runs, want 1", len(held))
	}
	return held[0]
}

// A job that somebody has locked, as a change of its definition that takes long, holds up no other job.
func TestLockedJobHoldsUpNoOtherJobsSlots(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	s := ownClaims(t, database, 1)
	var runs []run.HeldRun
	for i, name := range []string{"before", "locked", "after"} {
		runs = append(runs, boundedJob(t, s, name, run.Token(20+i)))
	}
	tx := meanwhileIn(t, database)
	_, err := tx.Exec(t.Context(), `SELECT id FROM jobs WHERE name = 'locked' FOR UPDATE`)
	must(t, err)
	undecided := func(err error) {
		t.Helper()
		var some *dispatcher.UndecidedError
		if !errors.As(err, &some) || len(some.Runs) != 1 || some.Runs[0].Key != runs[1].Key {
			t.Errorf("while a job is locked: error %v, want the run of that job to ask again", err)
		}
	}
	granted, err := s.Acquire(t.Context(), runs)
	undecided(err)
	if len(granted) != 2 {
		t.Errorf("granted %v, want the runs of the other two jobs", granted)
	}
	must(t, s.Record(t.Context(), succeeded(claimer, granted...)))
	undecided(s.ReleaseSlots(t.Context(), runs))
	if n := count(t, s, `SELECT count(*) FROM slots`); n != 0 {
		t.Errorf("%d slots are taken, want none", n)
	}
	must(t, s.GrantWaiting(t.Context()))
	must(t, tx.Rollback(t.Context()))
	granted, err = s.Acquire(t.Context(), runs[1:2])
	if err != nil || len(granted) != 1 {
		t.Errorf("once it is free: granted %v, %v, want the run", granted, err)
	}
}

// What a request for a slot reads does not depend on how many runs of the job there are.
func TestSlotsOfAJobWithVeryManyRuns(t *testing.T) {
	need.Step(t, "scale")
	t.Parallel()
	onBoth(t, func(t *testing.T, s *store.Store) {
		const waiting = 20_000
		must(t, s.Register(t.Context(), dispatcher.Node{ID: claimer}, may1))
		first := boundedJob(t, s, "job", 20)
		must(t, store.Exec(t.Context(), s, fmt.Sprintf(`
			INSERT INTO live_runs (app_id, scheduled_at, trigger_id, job_id, revision, node, token, attempt, kind, state)
			WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < %d)
			SELECT %[4]d, %[2]d + n, %[3]d, %[3]d, 1, 0, 0, 0, 2, 'queued' FROM i`, waiting, may1.UnixMilli(), run.JobID("app", "job"),
			run.AppID("app"))))
		runs, err := store.Contenders(t.Context(), s, run.JobID("app", "job"), 3)
		must(t, err)
		if runs != 6 {
			t.Errorf("read %d runs, want the first and the last three", runs)
		}
		granted, err := s.Acquire(t.Context(), []run.HeldRun{first})
		if err != nil || len(granted) != 1 {
			t.Fatalf("granted %v, %v, want the first run", granted, err)
		}
		held, err := adopt(t.Context(), s, dispatcher.AdoptQuery{Node: claimer, Token: 21, Limit: 3, Now: may1.Add(time.Hour)})
		must(t, err)
		granted, err = s.Acquire(t.Context(), held)
		if err != nil || len(granted) != 0 {
			t.Errorf("granted %v, %v, want none while the slot is taken", granted, err)
		}
		must(t, s.Record(t.Context(), succeeded(claimer, first)))
		must(t, s.ReleaseSlots(t.Context(), []run.HeldRun{first}))
		if next := count(t, s, fmt.Sprintf(`SELECT count(*) FROM live_runs WHERE node = 0 AND scheduled_at = %d`,
			held[0].ScheduledAt.UnixMilli())); next != 1 {
			t.Error("the run that waited longest was not woken")
		}
	})
}
