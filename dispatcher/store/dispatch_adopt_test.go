package store_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
	"github.com/carillon-dev/carillon/test/sqlitetest"
)

// openSnapshot keeps removed rows in a database, as a dump does.
func openSnapshot(t *testing.T, database string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	must(t, err)
	t.Cleanup(func() { must(t, conn.Close(context.WithoutCancel(t.Context()))) })
	snapshot, err := conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	must(t, err)
	_, err = snapshot.Exec(t.Context(), `SELECT count(*) FROM live_runs`)
	must(t, err)
}

// idle finds runs that no node works on, as node 2 does.
func idle(t *testing.T, s *store.Store, now time.Time) []dispatcher.Adoptable {
	t.Helper()
	found, err := s.Adoptable(t.Context(), dispatcher.AdoptQuery{Node: taker, Limit: 500, Now: now})
	must(t, err)
	return found
}

// Only one search visits the old rows of dead nodes, not each one, however many of them a long snapshot keeps.
func TestAdoptionSkipsEmptyDeadNodes(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	s := ownClaims(t, database, 1)
	must(t, s.Register(t.Context(), dispatcher.Node{ID: taker}, may1))
	must(t, s.Deregister(t.Context(), claimer))
	idle(t, s, may1.Add(time.Minute))
	young, err := store.AdoptionBuffers(t.Context(), s, may1.Add(90*time.Second))
	must(t, err)
	openSnapshot(t, database)
	for _, statement := range []string{
		`INSERT INTO live_runs (app_id, scheduled_at, trigger_id, job_id, revision, node, token, attempt, kind, state)
			SELECT 1, i, i, i, 1, 1, 1, 1, 1, 'claimed' FROM generate_series(1, 20000) AS i`,
		`INSERT INTO claims (token, node, claimed_at, trigger_ids, scheduled_at, job_ids, revisions)
			SELECT i, 1, 1, '{1}', '{1}', '{1}', '{1}' FROM generate_series(1, 20000) AS i`,
		`DELETE FROM live_runs`, `DELETE FROM claims`, `VACUUM live_runs`, `VACUUM claims`,
	} {
		must(t, store.Exec(t.Context(), s, statement))
	}
	again := may1.Add(2 * time.Minute) // it has been dead twice as long
	full, err := store.AdoptionBuffers(t.Context(), s, again)
	must(t, err)
	if full < 10*young {
		t.Errorf("a look at what the dead node had touches %d pages, want many more than the %d of a young database", full, young)
	}
	if found := idle(t, s, again); len(found) != 0 {
		t.Fatalf("found %v, want nothing", found)
	}
	old := math.MaxInt
	for range 3 { // the cheapest shows the cost of each adoption
		pages, err := store.AdoptionBuffers(t.Context(), s, again.Add(time.Minute))
		must(t, err)
		old = min(old, pages)
	}
	if old > young*3/2 {
		t.Errorf("an empty adoption touches %d pages, and %d in a young database", old, young)
	}
}

// A node may have begun to claim before it was marked dead. If the claim commits after an adoption found no rows of the
// node, a later one finds the claim: when the node has been dead twice as long, or some minutes later.
func TestClaimThatCommitsAfterAnEmptyAdoptionIsAdopted(t *testing.T) {
	t.Parallel()
	for dead, again := range map[time.Duration]time.Duration{20 * time.Second: 20 * time.Second, time.Hour: 5 * time.Minute} {
		t.Run(fmt.Sprintf("dead for %s", dead), func(t *testing.T) {
			t.Parallel()
			database := pgtest.New(t)
			s := ownClaims(t, database, 1)
			must(t, s.Register(t.Context(), dispatcher.Node{ID: taker}, may1))
			tx := meanwhileIn(t, database)
			_, err := tx.Exec(t.Context(), `INSERT INTO claims (token, node, claimed_at, trigger_ids, scheduled_at, job_ids, revisions)
				SELECT 11, o.id, $1::bigint, array[t.id], array[$1::bigint], array[$2::bigint], array[1] FROM nodes AS o, trigger_clock AS t
				WHERE o.id = $3 AND o.state = 'active'`, may1.UnixMilli(), run.JobID("app", "job"), int64(claimer))
			must(t, err)
			must(t, s.Deregister(t.Context(), claimer))
			empty := may1.Add(dead)
			if found := idle(t, s, empty); len(found) != 0 {
				t.Fatalf("found %v before the claim committed", found)
			}
			must(t, tx.Commit(t.Context()))
			if found := idle(t, s, empty.Add(again-time.Millisecond)); len(found) != 0 {
				t.Errorf("found %v; the node was to be left out a little longer", found)
			}
			if found := idle(t, s, empty.Add(again)); len(found) != 1 {
				t.Errorf("found %v, want the run of the claim", found)
			}
		})
	}
}

// Runs of a dead node that may not be adopted now, because their app is disabled, are adopted later.
func TestDeadNodeIsNotEmptyWhileItsAppIsDisabled(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *store.Store) {
		change := input.Change{Actor: "test", Now: may1.Add(-time.Minute)}
		must(t, s.Register(t.Context(), dispatcher.Node{ID: claimer}, may1))
		_, _, err := s.PutJob(t.Context(), tick("job", "", may1, "a"), change)
		must(t, err)
		claimDue(t, s, claimer, 11)
		_, _, err = s.PutApp(t.Context(), access.App{Name: "app"}, change)
		must(t, err)
		must(t, s.Deregister(t.Context(), claimer))
		must(t, s.Register(t.Context(), dispatcher.Node{ID: taker}, may1))
		for _, after := range []time.Duration{time.Minute, 3 * time.Minute} {
			if found := idle(t, s, may1.Add(after)); len(found) != 0 {
				t.Errorf("found %v of a disabled app", found)
			}
		}
		_, _, err = s.PutApp(t.Context(), access.App{Name: "app", AppSpec: access.AppSpec{Enabled: true}}, change)
		must(t, err)
		if found := idle(t, s, may1.Add(3*time.Minute+time.Second)); len(found) != 1 {
			t.Errorf("found %v, want the run that the dead node left", found)
		}
	})
}

// adoptRequested requests a run, and returns a function by which node 2 adopts it.
func adoptRequested(t *testing.T, s *store.Store) func() error {
	t.Helper()
	must(t, s.Register(t.Context(), dispatcher.Node{ID: taker}, may1))
	_, err := s.RequestRun(t.Context(), "app", "job", nil, input.Change{Actor: "test", Now: may1})
	must(t, err)
	found := idle(t, s, may1)
	return func() error {
		held, err := s.Adopt(t.Context(), dispatcher.AdoptQuery{Node: taker, Token: 5, Limit: 1, Now: may1}, found)
		if err == nil && len(held) != 1 {
			err = errNotAdopted
		}
		return err
	}
}

var errNotAdopted = errors.New("the run was not adopted")

// An adoption that began while the app was enabled may be committed long after the app was disabled. An export without it
// would let two installations attempt the run.
func TestExportWaitsForAdoptionsOfItsApp(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	s := ownClaims(t, database, 1)
	adopt := adoptRequested(t, s)
	for _, statement := range []string{
		`CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END'`,
		`CREATE TRIGGER gate BEFORE UPDATE ON live_runs FOR EACH ROW EXECUTE FUNCTION gate()`,
	} {
		must(t, store.Exec(t.Context(), s, statement))
	}
	gate := meanwhileIn(t, database)
	_, err := gate.Exec(t.Context(), `SELECT pg_advisory_xact_lock(1)`)
	must(t, err)
	var exported chan error
	must(t, whileItWaits(t, s, adopt, func() {
		_, _, err := s.PutApp(t.Context(), access.App{Name: "app"}, input.Change{Actor: "test", Now: may1.Add(time.Minute)})
		must(t, err)
		exported = make(chan error, 1)
		go func() {
			_, err := s.ExportApp(t.Context(), "app")
			exported <- err
		}()
		for len(exported) == 0 && count(t, s, waitingForLocks) < 2 {
		}
		must(t, gate.Commit(t.Context()))
	}))
	if err := <-exported; !errors.Is(err, dispatcher.ErrConflict) || !strings.Contains(err.Error(), "in flight") {
		t.Errorf("got error %v, want ErrConflict because of the run in flight", err)
	}
}

// An adoption that waits for an export sees that the app was disabled.
func TestAdoptionSeesTheSwitchThatItWaitedFor(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	s := ownClaims(t, database, 1)
	adopt := adoptRequested(t, s)
	export := meanwhileIn(t, database)
	for _, statement := range []string{`SELECT id FROM apps FOR UPDATE`, `UPDATE apps SET enabled = FALSE`} {
		_, err := export.Exec(t.Context(), statement)
		must(t, err)
	}
	if err := whileItWaits(t, s, adopt, func() { must(t, export.Commit(t.Context())) }); !errors.Is(err, errNotAdopted) {
		t.Errorf("got error %v, want %v", err, errNotAdopted)
	}
}

// Due retries are found by their own index, however many runs are live or will be attempted later.
func TestRetriesAreFoundByAnIndex(t *testing.T) {
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		testRetryPlan(t, open(t, sqlitetest.New(t)), "SEARCH r USING INDEX live_runs_retrying (next_attempt_at>? AND next_attempt_at<?)")
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		testRetryPlan(t, open(t, pgtest.New(t)), "Index Cond: ((next_attempt_at <= ")
	})
}

func testRetryPlan(t *testing.T, s *store.Store, want string) {
	t.Helper()
	const fill = `INSERT INTO live_runs (app_id, scheduled_at, trigger_id, kind, job_id, revision, node, token, attempt, state,
			next_attempt_at)
		WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 20000)
		SELECT 1, n, n, 1, 1, 1, 1, 1, 1, CASE WHEN n % 2 = 0 THEN 'retrying' ELSE 'claimed' END, CASE WHEN n % 2 = 0 THEN n * 10 END FROM s`
	must(t, store.Exec(t.Context(), s, fill))
	for _, statistics := range []string{"none", "fresh"} {
		if statistics == "fresh" {
			must(t, store.Exec(t.Context(), s, "ANALYZE"))
		}
		if plan, err := store.ExplainRetries(t.Context(), s, 1000); err != nil || !strings.Contains(plan, want) {
			t.Errorf("statistics %s: %v, got plan\n%s", statistics, err, plan)
		}
	}
}

// A search from the first remaining retry does not visit old ones, however many a long snapshot keeps.
func TestSearchForRetriesFromABoundReadsNoOldOnes(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	s := ownClaims(t, database, 1)
	openSnapshot(t, database)
	must(t, store.Exec(t.Context(), s, fmt.Sprintf(`INSERT INTO live_runs
		(app_id, scheduled_at, trigger_id, kind, job_id, revision, node, token, attempt, state, next_attempt_at)
		SELECT 1, i, i, 1, 1, 1, 1, 1, 1, 'retrying', %d + i FROM generate_series(1, 20000) AS i`, may1.UnixMilli())))
	must(t, store.Exec(t.Context(), s, `DELETE FROM live_runs`))
	must(t, store.Exec(t.Context(), s, `VACUUM live_runs`))
	now := may1.Add(time.Hour)
	all, err := store.RetriesBuffers(t.Context(), s, time.Time{}, now)
	must(t, err)
	some, err := store.RetriesBuffers(t.Context(), s, now.Add(-time.Minute), now)
	must(t, err)
	if all < 100 || some > 10 {
		t.Errorf("a look touches %d pages, and %d from the bound on; want more than 100, and 10 at most", all, some)
	}
}
