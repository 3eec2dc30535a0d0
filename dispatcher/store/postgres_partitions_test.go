package store_test

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
	"github.com/carillon-dev/carillon/test/sqlitetest"
)

// partitionsOf names the partitions of a range of days.
func partitionsOf(first time.Time, n int) (names []string) {
	for i := range n {
		date := first.Add(days(i)).Format("20060102")
		names = append(names, "runs_"+date, "run_inputs_"+date, "responses_"+date, "broadcasts_"+date, "attempts_"+date)
	}
	return names
}

func wantPartitions(t *testing.T, what string, s *store.Store, want []string) {
	t.Helper()
	got, err := store.Partitions(t.Context(), s)
	must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: partitions (-want +got):\n%s", what, diff)
	}
}

// openWithout opens a database without the partitions of its migration.
func openWithout(t testing.TB, database string) *store.Store {
	t.Helper()
	s := open(t, database)
	names, err := store.Partitions(t.Context(), s)
	must(t, err)
	must(t, store.Exec(t.Context(), s, "DROP TABLE "+strings.Join(names, ", ")))
	return s
}

func purge(t testing.TB, s *store.Store, now time.Time) dispatcher.Purged {
	t.Helper()
	removed, err := s.Purge(t.Context(), 1, now)
	must(t, err)
	return removed
}

func TestMigrationMakesPartitionsForNow(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.New(t))
	now, err := s.Clock(t.Context())
	must(t, err)
	today := now.Truncate(days(1))
	got, err := store.Partitions(t.Context(), s)
	must(t, err)
	// The template is migrated before the clock is read, possibly on the previous day.
	if !slices.Equal(got, partitionsOf(today.Add(-days(1)), 5)) && !slices.Equal(got, partitionsOf(today.Add(-days(2)), 5)) {
		t.Errorf("at %s: got partitions %q, want those of yesterday to three days ahead", now, got)
	}
}

func TestPartitionsAreMadeAndDropped(t *testing.T) {
	t.Parallel()
	s := openWithout(t, pgtest.New(t))
	long, short := declareApp(t, s, "long", days(10)), declareApp(t, s, "short", days(1))
	purge(t, s, may1.Add(days(1)))
	wantPartitions(t, "at first", s, partitionsOf(may1, 5))
	insertRuns(t, s, long, may1.Add(time.Hour), 10, false)
	insertRuns(t, s, short, may1.Add(days(1)), 10, true)
	insertRuns(t, s, long, may1.Add(days(1)).Add(time.Hour), 10, false)
	insertRuns(t, s, short, may1.Add(days(2)), 10, false)
	if n := count(t, s, `SELECT (SELECT count(*) FROM runs_default) + (SELECT count(*) FROM attempts_default) + (SELECT count(*)
		FROM responses_default)`); n != 0 {
		t.Errorf("%d rows went to the default partitions, want none", n)
	}
	if got := purge(t, s, may1.Add(days(11)).Add(-time.Millisecond)); got != (dispatcher.Purged{Runs: 10}) {
		t.Errorf("before the longest retention: removed %+v, want the ended runs of the other app", got)
	}
	if got := purge(t, s, may1.Add(days(11))); got != (dispatcher.Purged{}) {
		t.Errorf("a day after its retention: removed %+v, want nothing: what is less than a day late ended within it", got)
	}
	if got := purge(t, s, may1.Add(days(12))); got != (dispatcher.Purged{Partitions: 5}) {
		t.Errorf("two days after it: removed %+v, want the partitions of the day", got)
	}
	if got := purge(t, s, may1.Add(days(13))); got != (dispatcher.Purged{Partitions: 5}) {
		t.Errorf("a day of which runs are live: removed %+v, want its partitions", got)
	}
	if runs, rest := count(t, s, `SELECT count(*) FROM live_runs`), count(t, s, `SELECT (SELECT count(*) FROM attempts_default)
		+ (SELECT count(*) FROM responses_default)`); runs != 10 || rest != 20 {
		t.Errorf("of the live runs %d are left, and %d attempts and responses, want all", runs, rest)
	}
	wantPartitions(t, "at last", s, append(partitionsOf(may1.Add(days(2)), 3), partitionsOf(may1.Add(days(9)), 8)...))
}

// Runs that ended late are kept from their end on, with attempts and responses, even if their day is dropped.
func TestRunsThatEndedLateOutliveTheirDay(t *testing.T) {
	t.Parallel()
	s := openWithout(t, pgtest.New(t))
	job := declareApp(t, s, "app", days(10))
	purge(t, s, may1)
	insertRuns(t, s, job, may1.Add(time.Hour), 100, false)
	must(t, store.Exec(t.Context(), s, fmt.Sprintf(`UPDATE runs SET ended_at = %d WHERE scheduled_at < %d`,
		may1.Add(days(9)).UnixMilli(), may1.Add(time.Hour).UnixMilli()+30)))
	rows := func() (all [5]int64) {
		for i, table := range []string{"runs", "attempts", "responses", "broadcasts", "run_inputs"} {
			all[i] = count(t, s, `SELECT count(*) FROM `+table)
		}
		return all
	}
	if got := purge(t, s, may1.Add(days(12))); got != (dispatcher.Purged{Partitions: 10}) || rows() != [5]int64{30, 30, 30, 30, 30} {
		t.Errorf("of an expired day: removed %+v, left %v, want its partitions gone and the 30 late runs kept", got, rows())
	}
	if got := purge(t, s, may1.Add(days(20))); got.Runs != 30 || rows() != [5]int64{} {
		t.Errorf("when they have expired, too: removed %+v, left %v, want nothing left", got, rows())
	}
}

// A deleted app without history does not keep the days of other apps.
func TestDeletedAppWithoutHistoryKeepsNoDays(t *testing.T) {
	t.Parallel()
	s := openWithout(t, pgtest.New(t))
	declareApp(t, s, "short", days(10))
	declareApp(t, s, "long", days(3650))
	purge(t, s, may1)
	change := input.Change{Actor: "test", Now: may1}
	must(t, s.DeleteJob(t.Context(), "long", "job", change))
	must(t, s.DeleteApp(t.Context(), "long", change))
	insertRuns(t, s, run.JobID("long", "job"), may1.Add(time.Hour), 1, false)
	if got := purge(t, s, may1.Add(days(12))); got.Partitions != 0 {
		t.Errorf("with history: removed %+v, want all days kept", got)
	}
	must(t, store.Exec(t.Context(), s, `DELETE FROM runs`))
	if got := purge(t, s, may1.Add(days(12))); got.Partitions == 0 {
		t.Errorf("without history: removed %+v, want the expired days", got)
	}
}

// Rows of a day that was not made in time stay where they are.
func TestDayWithRowsInTheDefaultPartition(t *testing.T) {
	t.Parallel()
	s := openWithout(t, pgtest.New(t))
	job := declareApp(t, s, "app", days(10))
	insertRuns(t, s, job, may1.Add(time.Hour), 10, false)
	for range 2 {
		if got := purge(t, s, may1); got != (dispatcher.Purged{}) {
			t.Errorf("removed %+v, want nothing", got)
		}
		wantPartitions(t, "next to the default", s, append(partitionsOf(may1.Add(-days(1)), 1), partitionsOf(may1.Add(days(1)), 3)...))
	}
	if got := purge(t, s, may1.Add(days(11))); got.Runs != 10 || got.Partitions != 5 {
		t.Errorf("after its retention: removed %+v, want the runs, and the empty day before", got)
	}
}

// Nodes that purge at the same time do not block each other.
func TestConcurrentPurgesDoNotConflict(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	s := openWithout(t, database)
	job := declareApp(t, s, "app", days(10))
	insertRuns(t, s, job, may1, 2000, false)
	var wg sync.WaitGroup
	for range 4 {
		node := open(t, database)
		wg.Go(func() {
			for n := range 20 {
				if _, err := node.Purge(t.Context(), run.NodeID(n+1), may1.Add(days(n))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	purge(t, s, may1.Add(days(20)))
	if n := count(t, s, `SELECT count(*) FROM runs`); n != 0 {
		t.Errorf("%d runs are left, want none", n)
	}
	// A day may be missing in between because each node left it to the other.
	got, err := store.Partitions(t.Context(), s)
	must(t, err)
	want := partitionsOf(may1.Add(days(19)), 5)
	if n := len(got) - len(want); n < 0 || !slices.Equal(got[n:], want) || got[0] < "runs_20260510" {
		t.Errorf("at last: got partitions %q, want these: %q, and none before 20260510", got, want)
	}
}

// A purge does not disturb the holder of a lock, and does not wait for it.
func TestPurgeGivesUpInsteadOfWaiting(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]string{
		"a write":   `UPDATE runs SET error = 'x'`,
		"an export": `LOCK TABLE runs, attempts IN ACCESS SHARE MODE`,
		"a change":  `LOCK TABLE runs IN ACCESS EXCLUSIVE MODE`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := pgtest.New(t)
			s := openWithout(t, database)
			job := declareApp(t, s, "app", days(10))
			purge(t, s, may1)
			insertRuns(t, s, job, may1, 10, false)
			conn, err := pgx.Connect(t.Context(), database)
			must(t, err)
			t.Cleanup(func() { conn.Close(context.WithoutCancel(t.Context())) })
			tx, err := conn.Begin(t.Context())
			must(t, err)
			_, err = tx.Exec(t.Context(), lock)
			must(t, err)
			// It ends while the lock is held. The session's lock timeout would end it with an error.
			if got := purge(t, s, may1.Add(days(12))); got.Runs != 0 || got.Partitions > 4 {
				t.Errorf("next to a lock: removed %+v, want nothing but the empty day", got)
			}
			must(t, tx.Commit(t.Context()))
			purge(t, s, may1.Add(days(12)))
			if n := count(t, s, `SELECT count(*) FROM runs`); n != 0 {
				t.Errorf("%d runs are left once the lock is gone, want none", n)
			}
		})
	}
}

// Only one node at a time cleans up, and one that froze meanwhile and wakes removes nothing.
func TestOneNodePurgesAtATime(t *testing.T) {
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) { t.Parallel(); testOnePurges(t, open(t, sqlitetest.New(t))) })
	t.Run("PostgreSQL", func(t *testing.T) { t.Parallel(); testOnePurges(t, open(t, pgtest.New(t))) })
}

func testOnePurges(t *testing.T, s *store.Store) {
	job := declareApp(t, s, "app", days(10))
	insertRuns(t, s, job, may1, 10, false)
	now := may1.Add(days(12))
	var other []dispatcher.Lock
	removed, err := store.PurgeMeanwhile(t.Context(), s, 1, now, func(wake time.Time) {
		var err error
		other, err = s.Lock(t.Context(), dispatcher.LockRequest{Node: 2, Names: []string{dispatcher.LockHistory}, AtMost: time.Minute, Now: wake})
		must(t, err)
	})
	if err != nil || len(other) != 1 || removed.Runs+removed.Partitions != 0 {
		t.Errorf("who woke without its lock removed %+v, %v, while %v held it; want nothing", removed, err, other)
	}
	if busy, err := s.Purge(t.Context(), 1, now.Add(time.Minute)); err != nil || !busy.Busy || busy.Runs != 0 {
		t.Errorf("next to another: %+v, %v, want it busy", busy, err)
	}
	must(t, s.Unlock(t.Context(), other))
	purge(t, s, now.Add(time.Minute))
	if n := count(t, s, `SELECT count(*) FROM runs`); n != 0 {
		t.Errorf("%d runs are left once the lock is free, want none", n)
	}
}

// Claims continue while days are made, filled and dropped.
func TestClaimsContinueWhilePartitionsRotate(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	s, other := openWithout(t, database), open(t, database)
	must(t, s.Register(t.Context(), dispatcher.Node{ID: 1}, may1))
	declareApp(t, s, "app", days(1))
	change := input.Change{Actor: "test", Now: may1}
	j, err := s.Job(t.Context(), "app", "job")
	must(t, err)
	j.Enabled = true
	start := may1.Add(time.Hour)
	j.Triggers = map[string]dispatcher.Trigger{"tick": {
		TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: "rate(1h)", StartAt: &start},
			MisfireAfter: dispatcher.DefaultMisfireAfter, Enabled: true},
	}}
	j, _, err = s.PutJob(t.Context(), j, change)
	must(t, err)
	const fires = 500
	turned := make(chan int)
	claimed := make(chan struct{})
	go func() {
		dropped := 0
		for n := 0; ; n++ {
			removed, err := other.Purge(t.Context(), 2, may1.Add(days(n%(fires/24))))
			if err != nil {
				t.Error(err)
			}
			dropped += removed.Partitions
			select {
			case <-claimed:
				turned <- dropped
				return
			default:
			}
		}
	}()
	advance := dispatcher.Advance{TriggerID: run.TriggerID("app", "job", "tick"), JobID: run.JobID("app", "job"),
		Revision: j.Revision,
		Next:     *j.Triggers["tick"].NextFireTime}
	for n := range fires {
		advance.Then = advance.Next.Add(time.Hour)
		held, err := s.Claim(t.Context(), dispatcher.ClaimBatch{Node: 1, Token: 7, Advances: []dispatcher.Advance{advance}, Now: advance.Next})
		if err != nil || len(held) != 1 {
			t.Errorf("fire %d: claimed %v, %v, want it", n, held, err)
			break
		}
		ended := run.Outcome{State: run.Succeeded, StartedAt: advance.Next, EndedAt: advance.Next}
		must(t, s.Record(t.Context(), []dispatcher.Record{{Key: held[0].Key, Node: 1, Token: 7, Attempt: 1, Outcome: ended}}))
		advance.Prev, advance.Next = advance.Next, advance.Then
	}
	close(claimed)
	t.Logf("%d partitions were dropped meanwhile", <-turned)
}

var scanned = regexp.MustCompile(` on (runs_\w+)`)

// partitionsIn returns the partitions of runs that a plan touches.
func partitionsIn(plan string) []string {
	touched := map[string]bool{}
	for _, match := range scanned.FindAllStringSubmatch(plan, -1) {
		touched[match[1]] = true
	}
	return slices.Sorted(maps.Keys(touched))
}

// A run with a known instant is searched for in its day only.
func TestRunIsSearchedInItsPartition(t *testing.T) {
	t.Parallel()
	s := openWithout(t, pgtest.New(t))
	job := declareApp(t, s, "app", days(30))
	for n := range 30 {
		purge(t, s, may1.Add(days(n)))
	}
	day10 := may1.Add(days(10))
	insertRuns(t, s, job, day10, 500, false)
	key := run.Key{TriggerID: job, ScheduledAt: day10, Kind: run.KindSchedule}
	plan, err := store.ExplainRun(t.Context(), s, key)
	must(t, err)
	if diff := cmp.Diff([]string{"runs_20260511"}, partitionsIn(plan)); diff != "" {
		t.Errorf("a run by its id: partitions (-want +got):\n%s\n%s", diff, plan)
	}
}

// However many days are kept, a list looks up the fires of open claims in their own days.
func TestOpenClaimsAreLookedUpInTheirDays(t *testing.T) {
	need.Step(t, "scale")
	t.Parallel()
	s := ownClaims(t, pgtest.New(t), 3)
	for n := range 365 {
		must(t, store.Exec(t.Context(), s, fmt.Sprintf(`CREATE TABLE past_%d PARTITION OF runs FOR VALUES FROM (%d) TO (%d)`,
			n, may1.Add(-days(n+1)).UnixMilli(), may1.Add(-days(n)).UnixMilli())))
	}
	if held := claimDue(t, s, claimer, 1); len(held) != 3 {
		t.Fatalf("claimed %d fires, want 3", len(held))
	}
	plan, err := store.ExplainRunsOfApp(t.Context(), s, "app", may1, may1.Add(days(1)))
	must(t, err)
	if n := strings.Count(plan, "past_"); n > 0 {
		t.Errorf("the list of a day with open claims looks into %d other days:\n%.3000s", n, plan)
	}
	listed, err := s.Runs(t.Context(), dispatcher.RunQuery{App: "app", From: may1, To: may1.Add(days(1)), Page: input.Page{Limit: 10}})
	must(t, err)
	if len(listed) != 3 || listed[0].State != run.Claimed {
		t.Errorf("listed %+v, want the three fires of the claim", listed)
	}
}
