package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
	"github.com/carillon-dev/carillon/test/sqlitetest"
)

// crowdSize is how many runs of one app are due in the tests of turns.
const crowdSize = 100_000

// crowdedByOne opens a database with crowdSize due runs of the app "crowded" and later three of the app "app": queued
// ones, or retries.
func crowdedByOne(t *testing.T, database string, retries bool) *store.Store {
	t.Helper()
	s := ownClaims(t, database, 1)
	must(t, s.Register(t.Context(), dispatcher.Node{ID: taker}, may1))
	change := input.Change{Actor: "test", Now: may1.Add(-time.Minute)}
	_, _, err := s.PutApp(t.Context(), access.App{Name: "crowded", AppSpec: access.AppSpec{Enabled: true}}, change)
	must(t, err)
	insert := func(app string, runs int, at time.Time) {
		for name, kind := range map[string]int{"job0": 2, "job1": 2} { // two jobs each
			one := tick(name, "", may1, "a")
			one.App = app
			_, _, err := s.PutJob(t.Context(), one, change)
			must(t, err)
			must(t, store.Exec(t.Context(), s, fmt.Sprintf(`INSERT INTO live_runs (scheduled_at, trigger_id, job_id, app_id, revision, node, token,
					attempt, kind, state, next_attempt_at, retry_until)
				WITH RECURSIVE i (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < %d)
				SELECT %d + n, %d, %[3]d, %d, 1, 0, 0, %d, %d, %s FROM i`, runs, at.UnixMilli(), run.JobID(app, name), run.AppID(app),
				map[bool]int{true: 1}[retries], kind, map[bool]string{
					false: `'queued', NULL, NULL`,
					true:  fmt.Sprintf(`'retrying', %d + n, %d`, at.UnixMilli(), at.Add(24*time.Hour).UnixMilli()),
				}[retries])))
		}
	}
	insert("crowded", crowdSize/2, may1)
	insert("app", 3, may1.Add(time.Hour))
	return s
}

// The first batch contains runs of every app, however many runs of one app are due.
func TestBacklogOfOneAppDelaysNoOtherApp(t *testing.T) {
	t.Parallel()
	for _, database := range []string{"SQLite", "PostgreSQL"} {
		for _, retries := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s retries %t", database, retries), func(t *testing.T) {
				t.Parallel()
				file := sqlitetest.New(t)
				if database == "PostgreSQL" {
					file = pgtest.New(t)
				}
				s := crowdedByOne(t, file, retries)
				query := dispatcher.AdoptQuery{Node: taker, Token: 9, Limit: 500, Now: may1.Add(2 * time.Hour), Retries: retries}
				for _, want := range []int{6, 0} {
					found, err := s.Adoptable(t.Context(), query)
					must(t, err)
					if small := ofApp(found, "app"); small != want || len(found) != 500 {
						t.Errorf("found %d runs of the small app among %d, want %d among 500", small, len(found), want)
					}
					_, err = s.Adopt(t.Context(), query, found)
					must(t, err)
				}
			})
		}
	}
}

func ofApp(found []dispatcher.Adoptable, app string) (n int) {
	for _, r := range found {
		if r.AppID == run.AppID(app) {
			n++
		}
	}
	return n
}

// A search costs what it finds, not what waits: on PostgreSQL with and without statistics, and with old rows kept.
func TestSearchInTurnsReadsOnlyRunsThatItFinds(t *testing.T) {
	t.Parallel()
	for _, retries := range []bool{false, true} {
		t.Run(fmt.Sprintf("retries %t", retries), func(t *testing.T) {
			t.Parallel()
			s := crowdedByOne(t, pgtest.New(t), retries)
			for _, statistics := range []string{"none", "fresh"} {
				if statistics == "fresh" {
					must(t, store.Exec(t.Context(), s, "VACUUM (ANALYZE)"))
				}
				pages, err := store.TurnsBuffers(t.Context(), s, may1.Add(2*time.Hour), retries)
				must(t, err)
				if pages > 6000 { // some 500 runs, each with its row and its job
					t.Errorf("statistics %s: a look touches %d pages, want at most 6000 of %d runs", statistics, pages, crowdSize)
				}
			}
		})
	}
}

// SQLite uses an index to find the apps and then the runs of each.
func TestSearchInTurnsHasAnIndexOnSQLite(t *testing.T) {
	t.Parallel()
	s := open(t, sqlitetest.New(t))
	for _, retries := range []bool{false, true} {
		plan, err := store.ExplainTurns(t.Context(), s, retries)
		must(t, err)
		for _, want := range map[bool][]string{
			false: {"live_runs_idle (app_id>?)", "live_runs_idle (app_id=? AND <expr>>?)"},
			true:  {"live_runs_retrying_apps (app_id>?)", "live_runs_retrying_apps (app_id=? AND next_attempt_at>? AND next_attempt_at<?)"},
		}[retries] {
			if !strings.Contains(plan, want) {
				t.Errorf("retries %t: want %q in the plan\n%s", retries, want, plan)
			}
		}
	}
}

// endsOfApps inserts pending ends of a job of the app "crowded", and later ones of a job of the app "app": failed runs,
// or decisions about missed fires.
func endsOfApps(t *testing.T, s *store.Store, kind, big, small int) {
	t.Helper()
	change := input.Change{Actor: "test", Now: may1.Add(-time.Minute)}
	for i, app := range []string{"crowded", "app"} {
		_, _, err := s.PutApp(t.Context(), access.App{Name: app, AppSpec: access.AppSpec{Enabled: true}}, change)
		must(t, err)
		for _, name := range []string{"child", "parent"} {
			one := tick(name, "", may1, "a")
			if one.App = app; name == "parent" {
				one.OnFailure, one.OnMisfire = &dispatcher.Follow{Jobs: []string{"child"}, Payload: dispatcher.FollowResult},
					&dispatcher.Follow{Jobs: []string{"child"}}
			}
			_, _, err = s.PutJob(t.Context(), one, change)
			must(t, err)
		}
		job := run.JobID(app, "parent")
		must(t, store.Exec(t.Context(), s, fmt.Sprintf(`INSERT INTO pending_ends (ended_at, trigger_id, scheduled_at, kind, job_id, app_id,
				attempt, http_status, state, class, error)
			WITH RECURSIVE i (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < %d)
			SELECT %[2]d + n, %[3]d, %[2]d + n, %[4]d, %[3]d, %[5]d, 1, 0, '%[6]s', '', '' FROM i`, []int{big, small}[i],
			may1.Add(time.Duration(i)*time.Hour).UnixMilli(), job, kind, run.AppID(app), map[bool]string{true: "failed"}[kind > 0])))
	}
}

// The first call queues the followers for every app, however many runs of one app ended or fires were missed.
func TestEndsOfOneAppDelayNoOther(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]int{"failed runs": 1, "missed fires": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBothDatabases(t, func(t *testing.T, database string) {
				s := open(t, database)
				endsOfApps(t, s, kind, 20_000, 3)
				done, err := s.FollowEnds(t.Context(), dispatcher.FollowQuery{Limit: 200, Now: may1.Add(2 * time.Hour)})
				must(t, err)
				left, err := store.Count(t.Context(), s, fmt.Sprintf(`SELECT count(*) FROM pending_ends WHERE app_id = %d`, run.AppID("app")))
				must(t, err)
				if left != 0 || done.Ends != 103 || !done.More {
					t.Errorf("%d ends of the small app are left, want none; %d were followed, want 103, and there are more: %t",
						left, done.Ends, done.More)
				}
			})
		})
	}
}

// A page of ends that cannot be followed is processed in turns, too.
func TestBadEndsOfOneAppDelayNoOther(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		s := open(t, database)
		endsOfApps(t, s, 1, 100, 3)
		must(t, store.Exec(t.Context(), s, fmt.Sprintf(`INSERT INTO responses (scheduled_at, trigger_id, kind, attempt, response)
			SELECT scheduled_at, trigger_id, kind, attempt, '{"body": ' FROM pending_ends WHERE app_id = %d`, run.AppID("crowded"))))
		done, err := s.FollowEnds(t.Context(), dispatcher.FollowQuery{Limit: 10, Now: may1.Add(2 * time.Hour)})
		must(t, err)
		if done.Ends != 3 || len(done.SetAside) != 5 || !done.More {
			t.Errorf("%d ends were followed and %d set aside, want 3 and 5; there are more: %t", done.Ends, len(done.SetAside), done.More)
		}
	})
}

// boundedJob declares a job that executes one run at a time, and requests and adopts a run.
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

// A locked job, as by a long change of its definition, does not delay other jobs.
func TestLockedJobDoesNotDelaySlotsOfOtherJobs(t *testing.T) {
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

// A request for a slot reads the same number of rows, however many runs the job has.
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
