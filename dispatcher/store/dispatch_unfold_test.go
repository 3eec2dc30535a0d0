package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
	"github.com/carillon-dev/carillon/test/sqlitetest"
)

// In these tests node 1 claims, and other nodes take its claims.
const claimer, taker = run.NodeID(1), run.NodeID(2)

// ownClaims returns a store with node 1 and a job whose triggers fire every minute from may1 on.
func ownClaims(t *testing.T, database string, triggers int) *store.Store {
	t.Helper()
	s := open(t, database)
	must(t, s.Register(t.Context(), dispatcher.Node{ID: claimer}, may1))
	change := input.Change{Actor: "test", Now: may1.Add(-time.Minute)}
	_, _, err := s.PutApp(t.Context(), access.App{Name: "app", AppSpec: access.AppSpec{Enabled: true}}, change)
	must(t, err)
	names := make([]string, triggers)
	for i := range names {
		names[i] = fmt.Sprintf("t%d", i)
	}
	_, _, err = s.PutJob(t.Context(), tick("job", "", may1, names...), change)
	must(t, err)
	return s
}

// claimDue claims the due fires in one claim of a node.
func claimDue(t *testing.T, s *store.Store, node run.NodeID, token run.Token) []run.HeldRun {
	t.Helper()
	due, err := s.Due(t.Context(), dispatcher.DueQuery{Until: may1.Add(time.Hour), Now: may1, Limit: 1000})
	must(t, err)
	batch := dispatcher.ClaimBatch{Node: node, Token: token, Now: may1.Add(time.Hour)}
	for _, d := range due {
		batch.Advances = append(batch.Advances, dispatcher.Advance{
			TriggerID: d.ID, JobID: run.JobID("app", "job"), Revision: d.Revision, Prev: d.PrevFireTime, Next: d.NextFireTime,
			Then: d.NextFireTime.Add(time.Minute),
		})
	}
	held, err := s.Claim(t.Context(), batch)
	must(t, err)
	return held
}

// succeeded returns records of runs that succeed.
func succeeded(node run.NodeID, runs ...run.HeldRun) (all []dispatcher.Record) {
	for _, r := range runs {
		all = append(all, dispatcher.Record{
			Key: r.Key, JobID: r.JobID, Revision: r.Revision, ClaimedAt: r.ClaimedAt, Node: node, Token: r.Token,
			Attempt: r.Attempt, Outcome: run.Outcome{State: run.Succeeded, StartedAt: may1, EndedAt: may1.Add(time.Second)},
		})
	}
	return all
}

// onceEach fails unless each run is in exactly one table, and the live ones belong to a living node.
func onceEach(t *testing.T, s *store.Store, want int64) {
	t.Helper()
	ended, live := count(t, s, `SELECT count(*) FROM runs`), count(t, s, `SELECT count(*) FROM live_runs`)
	both := count(t, s, `SELECT count(*) FROM runs AS r JOIN live_runs AS l USING (scheduled_at, trigger_id, kind)`)
	claims := count(t, s, `SELECT count(*) FROM claims`)
	if ended+live != want || both != 0 || claims != 0 {
		t.Errorf("%d runs are over and %d live, %d of them both, and there are %d claims; want %d runs once each",
			ended, live, both, claims, want)
	}
}

// meanwhileIn returns a transaction of another node.
func meanwhileIn(t *testing.T, database string) pgx.Tx {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	must(t, err)
	t.Cleanup(func() { must(t, conn.Close(context.WithoutCancel(t.Context()))) })
	tx, err := conn.Begin(t.Context())
	must(t, err)
	return tx
}

const waitingForLocks = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`

// whileItWaits calls do, waits until do waits for a lock, and calls meanwhile. It returns the error of do.
func whileItWaits(t *testing.T, s *store.Store, do func() error, meanwhile func()) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- do() }()
	for count(t, s, waitingForLocks) == 0 {
		select {
		case err := <-done:
			return errors.Join(err, errors.New("it did not wait"))
		case <-t.Context().Done():
			return t.Context().Err()
		default:
		}
	}
	meanwhile()
	return <-done
}

// On SQLite no new connection makes a node forget its records.
func TestLastRecordDeletesItsClaim(t *testing.T) {
	t.Parallel()
	s := ownClaims(t, sqlitetest.New(t), 2)
	held := claimDue(t, s, claimer, 3)
	for n, want := range []int64{1, 0} {
		must(t, s.Record(t.Context(), succeeded(claimer, held[n])))
		if claims := count(t, s, `SELECT count(*) FROM claims`); claims != want {
			t.Errorf("after %d of 2 records there are %d claims, want %d", n+1, claims, want)
		}
	}
}

// A run recorded while another node waits for its claim is not adopted.
func TestUnfoldingSeesTheRecordItWaitedFor(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	s := ownClaims(t, database, 2)
	held := claimDue(t, s, claimer, 11)
	tx := meanwhileIn(t, database)
	for _, statement := range []string{
		`SELECT token FROM claims FOR KEY SHARE`,
		fmt.Sprintf(`INSERT INTO runs (scheduled_at, trigger_id, job_id, revision, node, ended_at, attempt, http_status, kind)
			VALUES (%d, %d, %d, 1, 1, %[1]d, 1, 200, 1)`, held[0].ScheduledAt.UnixMilli(), held[0].TriggerID, held[0].JobID),
	} {
		_, err := tx.Exec(t.Context(), statement)
		must(t, err)
	}
	must(t, whileItWaits(t, s, func() error {
		_, err := s.CancelRun(t.Context(), held[1].String(), input.Change{Actor: "test", Now: may1})
		return err
	}, func() { must(t, tx.Commit(t.Context())) }))
	onceEach(t, s, 2)
	for i, want := range []run.State{run.Succeeded, run.Cancelled} {
		if run, err := s.Run(t.Context(), held[i].String()); err != nil || run.State != want {
			t.Errorf("run %d is %s, %v, want %s", i, run.State, err, want)
		}
	}
}

// A record that waits while its claim is unfolded goes to the live run, even if the process does not know the claim, as
// after an error.
func TestRecordSeesTheUnfoldingItWaitedFor(t *testing.T) {
	t.Parallel()
	for name, recorder := range map[string]func(t *testing.T, database string, claims *store.Store) *store.Store{
		"known claim":   func(_ *testing.T, _ string, claims *store.Store) *store.Store { return claims },
		"unknown claim": func(t *testing.T, database string, _ *store.Store) *store.Store { return open(t, database) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := pgtest.New(t)
			s := ownClaims(t, database, 2)
			held := claimDue(t, s, claimer, 11)
			tx := meanwhileIn(t, database)
			for _, statement := range []string{
				`SELECT token FROM claims FOR UPDATE`,
				`INSERT INTO live_runs (app_id, scheduled_at, trigger_id, kind, job_id, revision, node, token, claimed_at, attempt, state)
			SELECT 1, u.at, u.trigger, 1, u.job, u.revision, node, token, claimed_at, 1, 'claimed'
			FROM claims, unnest(trigger_ids, scheduled_at, job_ids, revisions) AS u(trigger, at, job, revision)`,
				`DELETE FROM claims`,
			} {
				_, err := tx.Exec(t.Context(), statement)
				must(t, err)
			}
			by := recorder(t, database, s)
			must(t, whileItWaits(t, s, func() error { return by.Record(t.Context(), succeeded(claimer, held...)) },
				func() { must(t, tx.Commit(t.Context())) }))
			onceEach(t, s, 2)
			if n := count(t, s, `SELECT count(*) FROM runs WHERE state IS NULL AND attempt = 1`); n != 2 {
				t.Errorf("%d first attempts are recorded, want 2", n)
			}
		})
	}
}

// Each run is either ended or live, whichever comes first: its record or the adoption of its claim.
func TestRecordsAndAdoptionsRace(t *testing.T) {
	t.Parallel()
	const rounds, triggers, batch = 15, 24, 5
	s := ownClaims(t, pgtest.New(t), triggers)
	for round := range rounds {
		from, to := claimer+2*run.NodeID(round+1), taker+2*run.NodeID(round+1)
		must(t, s.Register(t.Context(), dispatcher.Node{ID: from}, may1))
		must(t, s.Register(t.Context(), dispatcher.Node{ID: to}, may1))
		held := claimDue(t, s, from, run.Token(100*round+1))
		if len(held) != triggers {
			t.Fatalf("claimed %d fires, want %d", len(held), triggers)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for part := range slices.Chunk(held, batch) {
				if err := s.Record(t.Context(), succeeded(from, part...)); err != nil {
					t.Error(err)
				}
			}
		})
		var adopted []run.HeldRun
		wg.Go(func() {
			for range round % 5 { // so that they meet at different records
				_, _ = s.Held(t.Context(), from, 0)
			}
			err := s.Deregister(t.Context(), from)
			if err == nil {
				query := dispatcher.AdoptQuery{Node: to, Token: run.Token(100*round + 2), Limit: 100, Now: may1}
				adopted, err = adopt(t.Context(), s, query)
			}
			if err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		for run := range slices.Values(adopted) {
			if run.Attempt != 2 {
				t.Errorf("adopted attempt %d of run %s, want the second", run.Attempt, run)
			}
		}
		// Runs skipped by the adoption, because they were being recorded, are adopted later.
		more, err := adopt(t.Context(), s, dispatcher.AdoptQuery{Node: to, Token: run.Token(100*round + 3), Limit: 100, Now: may1})
		must(t, err)
		onceEach(t, s, int64((round+1)*triggers))
		must(t, s.Record(t.Context(), succeeded(to, append(adopted, more...)...)))
		onceEach(t, s, int64((round+1)*triggers))
		if live := count(t, s, `SELECT count(*) FROM live_runs`); live != 0 {
			t.Fatalf("round %d: %d runs are live after all are recorded", round, live)
		}
	}
}

// The records of a claim stay in the history until the claim is unfolded, however long no node ran: otherwise its fires
// would run again.
func TestPurgeUnfoldsForgottenClaimsFirst(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *store.Store) {
		must(t, s.Register(t.Context(), dispatcher.Node{ID: claimer}, may1))
		_, _, err := s.PutJob(t.Context(), tick("job", "", may1, "a", "b"), input.Change{Actor: "test", Now: may1.Add(-time.Minute)})
		must(t, err)
		held := claimDue(t, s, claimer, 11)
		must(t, s.Record(t.Context(), succeeded(claimer, held[0])))
		must(t, s.Deregister(t.Context(), claimer))
		later := may1.Add(days(400))
		must(t, s.Register(t.Context(), dispatcher.Node{ID: taker}, later))
		for purge(t, s, later).More {
		}
		adopted, err := adopt(t.Context(), s, dispatcher.AdoptQuery{Node: taker, Token: 12, Limit: 10, Now: later})
		if err != nil || len(adopted) != 1 || adopted[0].Key != held[1].Key {
			t.Errorf("adopted %v, %v, want only the run that was open, %s", adopted, err, held[1])
		}
	})
}

// The history keeps the records of ended fires as long as their claim exists: otherwise a node that starts after weeks
// would take the fires for open.
func TestPurgeKeepsRecordsThatClaimsNeed(t *testing.T) {
	t.Parallel()
	for name, database := range map[string]func(*testing.T) string{
		"PostgreSQL": func(t *testing.T) string { return pgtest.New(t) }, "SQLite": func(t *testing.T) string { return sqlitetest.New(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := ownClaims(t, database(t), 2)
			held := claimDue(t, s, claimer, 5)
			must(t, s.Record(t.Context(), succeeded(claimer, held[0])))
			must(t, s.Deregister(t.Context(), claimer)) // as if it had died
			later := may1.Add(days(100))
			must(t, s.Register(t.Context(), dispatcher.Node{ID: taker}, later))
			purgeAll(t, s, later)
			adopted, err := adopt(t.Context(), s, dispatcher.AdoptQuery{Node: taker, Token: 6, Limit: 10, Now: later})
			must(t, err)
			if len(adopted) != 1 || adopted[0].Key != held[1].Key {
				t.Errorf("adopted %+v, want only the fire that has not ended", adopted)
			}
		})
	}
}

// A locked claim cannot be unfolded, so the clean-up waits.
func TestPurgeWaitsForALockedClaim(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	s := ownClaims(t, database, 2)
	held := claimDue(t, s, claimer, 5)
	must(t, s.Record(t.Context(), succeeded(claimer, held[0])))
	end, err := store.Freeze(t.Context(), open(t, database), `SELECT token FROM claims FOR UPDATE`)
	must(t, err)
	defer end()
	purged, err := s.Purge(t.Context(), taker, may1.Add(days(100)))
	must(t, err)
	if !purged.Busy || purged.Runs > 0 || purged.Partitions > 0 {
		t.Errorf("purged %+v, want nothing while a claim is locked", purged)
	}
	if _, err := s.Run(t.Context(), held[0].String()); err != nil {
		t.Errorf("read the run that has ended: %v", err)
	}
}

// purgeAll purges until the store has no more to purge.
func purgeAll(t *testing.T, s *store.Store, now time.Time) {
	t.Helper()
	for {
		purged, err := s.Purge(t.Context(), taker, now)
		must(t, err)
		if !purged.More {
			return
		}
	}
}

// A response is stored before its run ends. If it cannot be stored, the run ends nevertheless.
func TestResponsesAreStoredBeforeTheirRunsEnd(t *testing.T) {
	need.Step(t, "databases")
	t.Parallel()
	for name, test := range map[string]struct {
		lock      string // a table locked meanwhile
		ended     bool   // while it is locked
		responses int
		recordErr bool
	}{
		"the run cannot end":          {lock: "runs", responses: 1},
		"the response cannot be kept": {lock: "responses", ended: true, recordErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, database := t.Context(), pgtest.New(t)
			s, r := registered(t, database)
			conn, err := pgx.Connect(ctx, database)
			must(t, err)
			defer conn.Close(ctx)
			held, err := conn.Begin(ctx)
			must(t, err)
			_, err = held.Exec(ctx, `LOCK TABLE `+test.lock+` IN EXCLUSIVE MODE`)
			must(t, err)
			record := func() error {
				return s.Record(ctx, []dispatcher.Record{{
					Key: r.Key, JobID: r.JobID, Revision: r.Revision, ClaimedAt: r.ClaimedAt, Node: firstNode,
					Token: r.Token, Attempt: 1,
					Outcome: run.Outcome{
						State: run.Succeeded, StartedAt: may1, EndedAt: may1, Response: &run.Response{Body: "yes"},
					},
				}})
			}
			recorded := make(chan error, 1)
			go func() { recorded <- record() }()
			var responses int
			var ended bool
			for deadline := time.Now().Add(waitLimit); responses != test.responses || ended != test.ended; {
				if time.Now().After(deadline) {
					t.Fatalf("%d responses, ended: %v; want %d, %v", responses, ended, test.responses, test.ended)
				}
				must(t, held.QueryRow(ctx, `SELECT (SELECT count(*) FROM responses), (SELECT count(*) > 0 FROM runs)`).Scan(&responses, &ended))
			}
			if test.recordErr {
				if err := <-recorded; err == nil {
					t.Error("no error says that the response was not kept")
				}
			}
			must(t, held.Rollback(ctx))
			if !test.recordErr {
				<-recorded // possibly with a lock timeout
			}
			must(t, record())
			got, err := s.Run(ctx, r.String())
			must(t, err)
			if got.EndedAt == nil || len(got.Attempts) != 1 || got.Attempts[0].Response == nil || got.Attempts[0].Response.Body != "yes" {
				t.Errorf("in the end: got %+v, want an end with its response", got)
			}
		})
	}
}
