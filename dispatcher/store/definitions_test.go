package store_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/seal"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
	"github.com/carillon-dev/carillon/test/sqlitetest"
)

// onBoth runs a test on a store of each kind, with an app "app".
func onBoth(t *testing.T, test func(t *testing.T, s *store.Store)) {
	t.Helper()
	for name, newDatabase := range map[string]func(t *testing.T) string{
		"SQLite":     func(t *testing.T) string { t.Helper(); return sqlitetest.New(t) },
		"PostgreSQL": func(t *testing.T) string { t.Helper(); return pgtest.New(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, newDatabase(t))
			_, _, err := s.PutApp(t.Context(), access.App{Name: "app", AppSpec: access.AppSpec{Enabled: true}}, input.Change{Actor: "test"})
			must(t, err)
			test(t, s)
		})
	}
}

func putCalendar(t *testing.T, s *store.Store, c dispatcher.Calendar, now time.Time) error {
	t.Helper()
	c.App = "app"
	_, _, err := s.PutCalendar(t.Context(), c, input.Change{Actor: "test", Now: now})
	return err
}

// tick returns a job with triggers that fire each minute from a time on, as a calendar allows.
func tick(name, calendar string, from time.Time, triggers ...string) dispatcher.Job {
	job := dispatcher.Job{
		App: "app", Name: name, JobSpec: dispatcher.JobSpec{Enabled: true, Triggers: map[string]dispatcher.Trigger{},
			Target: target.Target{Webhook: &target.Webhook{URL: "http://127.0.0.1", Method: "POST", Timeout: target.DefaultTimeout}}},
	}
	for _, trigger := range triggers {
		job.Triggers[trigger] = dispatcher.Trigger{
			TriggerSpec: dispatcher.TriggerSpec{
				Schedule:     dispatcher.Schedule{Expression: "rate(1m)", StartAt: &from, Calendar: calendar},
				MisfireAfter: dispatcher.DefaultMisfireAfter, Enabled: true,
			},
		}
	}
	return job
}

// An unreadable calendar does not count as one that excludes nothing.
func TestUnreadableCalendarDoesNotHideOthers(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *store.Store) {
		now := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
		must(t, putCalendar(t, s, dispatcher.Calendar{Name: "base"}, now))
		must(t, putCalendar(t, s, dispatcher.Calendar{Name: "bad", CalendarSpec: dispatcher.CalendarSpec{Bases: []string{"base"}}}, now))
		_, _, err := s.PutJob(t.Context(), tick("job", "bad", now, "tick"), input.Change{Now: now.Add(-time.Hour)})
		must(t, err)
		must(t, store.Exec(t.Context(), s, `UPDATE calendars SET definition = '{"rules":[{"moon":"full"}],"bases":["base"]}' WHERE name = 'bad'`))

		if _, err := s.Calendar(t.Context(), "app", "bad"); err == nil || !strings.Contains(err.Error(), "calendar app/bad: ") {
			t.Errorf("read: got error %v, want one that names the calendar", err)
		}
		all, err := s.Calendars(t.Context(), "app", input.Page{Limit: 10})
		if err != nil || len(all) != 2 || all[0].Err == nil || !strings.Contains(all[0].Description, "moon") || all[1].Err != nil {
			t.Errorf("list: got %+v, %v, want both, the first with its error", all, err)
		}
		_, all, err = s.AppCalendars(t.Context(), "app")
		must(t, err)
		if _, err := dispatcher.CompileCalendars(all).Find("bad"); err == nil {
			t.Error("compiled, it can be used")
		}
		var problems input.Problems
		_, _, err = s.PutJob(t.Context(), tick("other", "bad", now, "tick"), input.Change{Now: now})
		if !errors.As(err, &problems) || problems[0].Path != "/triggers/tick/calendar" {
			t.Errorf("a job that names it: got %v, want a problem of its trigger", err)
		}
		// A base can neither be deleted nor changed: its triggers could not follow.
		err = s.DeleteCalendar(t.Context(), "app", "base", input.Change{})
		if !errors.Is(err, dispatcher.ErrInUse) {
			t.Errorf("delete its base: got %v, want %v", err, dispatcher.ErrInUse)
		}
		base := dispatcher.Calendar{Name: "base",
			CalendarSpec: dispatcher.CalendarSpec{Rules: []schedule.CalendarRule{{Weekdays: []string{"SUN"}}}}}
		if err := putCalendar(t, s, base, now); !errors.As(err, &problems) ||
			!strings.Contains(err.Error(), `calendar "bad", which is built on this`) {
			t.Errorf("change its base: got %v, want a problem that names it", err)
		}
		must(t, putCalendar(t, s, dispatcher.Calendar{Name: "bad",
			CalendarSpec: dispatcher.CalendarSpec{Rules: []schedule.CalendarRule{{To: "11:00"}}}}, now))
		job, err := s.Job(t.Context(), "app", "job")
		must(t, err)
		if got := job.Triggers["tick"].NextFireTime; got == nil || !got.Equal(now.Add(time.Hour)) {
			t.Errorf("declared again: next fire is %v, want %s", got, now.Add(time.Hour))
		}
	})
}

func TestAppHoldsItsMaximumOfCalendars(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *store.Store) {
		now := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
		must(t, store.Exec(t.Context(), s, fmt.Sprintf(`INSERT INTO calendars (app_id, name, description, definition, revision,
			created_at, updated_at)
			WITH RECURSIVE s (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM s WHERE n < %d)
			SELECT a.id, 'c' || n, '', '{}', 1, 0, 0 FROM s CROSS JOIN apps AS a`, dispatcher.MaxCalendars)))
		must(t, putCalendar(t, s, dispatcher.Calendar{Name: "last"}, now))
		must(t, putCalendar(t, s, dispatcher.Calendar{Name: "last", CalendarSpec: dispatcher.CalendarSpec{Description: "again"}}, now))
		var problems input.Problems
		if err := putCalendar(t, s, dispatcher.Calendar{Name: "more"}, now); !errors.As(err, &problems) ||
			problems[0].Code != input.CodeTooMany {
			t.Errorf("one more than the maximum: got %v, want code %s", err, input.CodeTooMany)
		}
	})
}

// Changes between the plan and the transaction of a change are not overwritten.
func TestCalendarPlanIsVoidAfterAnotherChange(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		now := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
		change := input.Change{Actor: "test", Now: now}
		must(t, s.Register(ctx, dispatcher.Node{ID: 1}, now))
		must(t, putCalendar(t, s, dispatcher.Calendar{Name: "freeze"}, now))
		for _, name := range []string{"claimed", "edited", "deleted", "paused", "same"} {
			_, _, err := s.PutJob(ctx, tick(name, "freeze", now, "tick"), input.Change{Now: now.Add(-time.Hour)})
			must(t, err)
		}
		freeze := dispatcher.Calendar{App: "app", Name: "freeze",
			CalendarSpec: dispatcher.CalendarSpec{Rules: []schedule.CalendarRule{{From: "10:01", To: "11:00"}}}}
		_, err := store.PutCalendarMeanwhile(ctx, s, freeze, change, func() {
			id := run.TriggerID("app", "claimed", "tick")
			held, err := s.Claim(ctx, dispatcher.ClaimBatch{Node: 1, Token: 1, Now: now, Advances: []dispatcher.Advance{{
				TriggerID: id, JobID: run.JobID("app", "claimed"), Revision: 1, CalendarRevision: 1, Next: now, Then: now.Add(time.Minute),
			}}})
			if err != nil || len(held) != 1 {
				t.Fatalf("claim: won %v, %v, want 1", held, err)
			}
			_, _, err = s.PutJob(ctx, tick("edited", "freeze", now.Add(5*time.Minute), "tick", "tock"), input.Change{Now: now.Add(-time.Hour)})
			must(t, err)
			must(t, s.DeleteJob(ctx, "app", "deleted", change))
			_, err = s.PauseJob(ctx, "app", "paused", "", true, change)
			must(t, err)
		})
		must(t, err)
		open := now.Add(time.Hour)
		for name, want := range map[string]time.Time{"claimed": open, "edited": open, "paused": now, "same": now} {
			job, err := s.Job(ctx, "app", name)
			must(t, err)
			for trigger, got := range job.Triggers {
				if got.NextFireTime == nil || !got.NextFireTime.Equal(want) {
					t.Errorf("%s/%s fires next at %v, want %s", name, trigger, got.NextFireTime, want)
				}
			}
		}
		must(t, store.Exec(ctx, s, `UPDATE trigger_clock SET calendar_revision = calendar_revision /
			(CASE WHEN calendar_revision = 2 THEN 1 ELSE 0 END)
			WHERE id IN (SELECT id FROM triggers WHERE deleted_at IS NULL)`)) // divides by zero if one was skipped

		// A plan for outdated calendars is void.
		closed := freeze
		closed.Rules = []schedule.CalendarRule{{To: "23:00"}}
		_, err = store.PutCalendarMeanwhile(ctx, s, freezeUntil("12:00"), change, func() {
			_, _, err := s.PutCalendar(ctx, closed, change)
			must(t, err)
		})
		must(t, err)
		job, err := s.Job(ctx, "app", "same")
		must(t, err)
		if got, want := job.Triggers["tick"].NextFireTime, now.Add(2*time.Hour); got == nil || !got.Equal(want) {
			t.Errorf("of two changes, the later counts: next fire is %v, want %s", got, want)
		}
	})
}

func freezeUntil(clock string) dispatcher.Calendar {
	return dispatcher.Calendar{App: "app", Name: "freeze", CalendarSpec: dispatcher.CalendarSpec{Rules: []schedule.CalendarRule{{To: clock}}}}
}

// Changes of calendars and jobs do not deadlock. A deadlock would be resolved, but only after a second.
func TestCalendarsDoNotDeadlock(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.New(t))
	ctx := t.Context()
	now := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	change := input.Change{Actor: "test", Now: now}
	_, _, err := s.PutApp(ctx, access.App{Name: "app", AppSpec: access.AppSpec{Enabled: true}}, change)
	must(t, err)
	must(t, putCalendar(t, s, freezeUntil("00:30"), now))
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	for _, name := range names {
		_, _, err := s.PutJob(ctx, tick(name, "freeze", now.Add(-time.Minute), names...), input.Change{Now: now.Add(-time.Hour)})
		must(t, err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 20 { // each defers all triggers that the previous one made due
			if err := putCalendar(t, s, freezeUntil(fmt.Sprintf("%02d:00", 10+i%2)), now.Add(time.Duration(i)*time.Hour)); err != nil {
				t.Error(err)
			}
		}
	})
	for _, name := range names {
		wg.Go(func() {
			for i := range 20 {
				if _, err := s.PauseJob(ctx, "app", name, "", i%2 == 0, change); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	must(t, store.Exec(ctx, s, `DO $$ BEGIN IF (SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()) > 0 THEN
		RAISE EXCEPTION 'there were deadlocks'; END IF; END $$`))
}

// BenchmarkPutCalendar measures a change of a calendar used by 100,000 triggers.
func BenchmarkPutCalendar(b *testing.B) {
	b.Run("PostgreSQL", func(b *testing.B) { benchPutCalendar(b, open(b, pgtest.New(b, pgtest.Fsync))) })
	b.Run("SQLite", func(b *testing.B) { benchPutCalendar(b, open(b, sqlitetest.New(b))) })
}

func benchPutCalendar(b *testing.B, s *store.Store) {
	const jobs = 1000 // a hundred triggers each
	start := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	change := input.Change{Actor: "bench", Now: start}
	_, _, err := s.PutApp(b.Context(), access.App{Name: "bench", AppSpec: access.AppSpec{Enabled: true}}, change)
	must(b, err)
	put := func(days ...string) {
		_, _, err := s.PutCalendar(b.Context(), dispatcher.Calendar{
			App: "bench", Name: "holidays", CalendarSpec: dispatcher.CalendarSpec{Timezone: "Europe/Berlin",
				Rules: []schedule.CalendarRule{{Weekdays: []string{"SAT", "SUN"}}, {Dates: days}}},
		}, change)
		must(b, err)
	}
	put("12-25")
	declareMany(b, s, jobs, func(t *dispatcher.Trigger) {
		t.Expression, t.Timezone, t.Calendar = "0 0 9 * * ?", "Europe/Berlin", "holidays"
	}, start)
	b.ResetTimer()
	for i := range b.N {
		put("12-25", fmt.Sprintf("2027-01-%02d", i%28+1))
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// declareMany puts jobs with a hundred triggers each, as define makes them, just before start.
func declareMany(b *testing.B, s *store.Store, jobs int, define func(*dispatcher.Trigger), start time.Time) {
	b.Helper()
	change := input.Change{Actor: "bench", Now: start.Add(-time.Second)}
	_, _, err := s.PutApp(b.Context(), access.App{Name: "bench", AppSpec: access.AppSpec{Enabled: true}}, change)
	must(b, err)
	for i := range jobs {
		job := dispatcher.Job{
			App: "bench", Name: fmt.Sprintf("job%d", i), JobSpec: dispatcher.JobSpec{Enabled: true, Triggers: map[string]dispatcher.Trigger{},
				Target: target.Target{Webhook: &target.Webhook{URL: "http://127.0.0.1", Method: "POST", Timeout: target.DefaultTimeout}}},
		}
		for n := range dispatcher.MaxTriggers {
			trigger := dispatcher.Trigger{TriggerSpec: dispatcher.TriggerSpec{MisfireAfter: dispatcher.DefaultMisfireAfter, Enabled: true}}
			define(&trigger)
			job.Triggers[fmt.Sprintf("t%d", n)] = trigger
		}
		_, _, err := s.PutJob(b.Context(), job, change)
		must(b, err)
	}
}

// BenchmarkPutJob measures a change of a job with a payload of 1 KiB, a stored secret and two triggers, with its entry
// in the audit log.
func BenchmarkPutJob(b *testing.B) {
	b.Run("PostgreSQL", func(b *testing.B) { benchPutJob(b, pgtest.New(b, pgtest.Fsync)) })
	b.Run("SQLite", func(b *testing.B) { benchPutJob(b, sqlitetest.New(b)) })
}

func benchPutJob(b *testing.B, database string) {
	keys, err := seal.Parse(base64.StdEncoding.EncodeToString(make([]byte, 32)))
	must(b, err)
	s := openAs(b, database, store.Options{Keys: keys})
	change := input.Change{Actor: "bench"}
	_, _, err = s.PutApp(b.Context(), access.App{Name: "bench", AppSpec: access.AppSpec{Enabled: true}}, change)
	must(b, err)
	trigger := dispatcher.Trigger{
		TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: "0 0 9 * * ?"},
			MisfireAfter: dispatcher.DefaultMisfireAfter, Enabled: true},
	}
	put := func(i int) {
		_, _, err := s.PutJob(b.Context(), dispatcher.Job{
			App: "bench", Name: "job", JobSpec: dispatcher.JobSpec{Enabled: true, Description: fmt.Sprint("change ", i),
				Triggers: map[string]dispatcher.Trigger{"a": trigger, "b": trigger},
				Payload:  []byte(`"` + strings.Repeat("x", 1000) + `"`),
				Target: target.Target{Webhook: &target.Webhook{
					URL: "https://example.com/hook", Method: "POST", Timeout: target.DefaultTimeout,
					Auth: &target.Auth{Bearer: &target.BearerAuth{Token: target.Secret{Value: input.NewSensitive("secret")}}},
				}}},
		}, change)
		must(b, err)
	}
	put(-1)
	b.ResetTimer()
	for i := range b.N {
		put(i)
	}
}

// A client that repeatedly puts the stored definition neither delays writers nor waits for them.
func TestChangeWithoutEffectTakesNoLock(t *testing.T) {
	t.Parallel()
	for name, database := range map[string]func() string{
		"SQLite": func() string { return sqlitetest.New(t) }, "PostgreSQL": func() string { return pgtest.New(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := database()
			s := ownClaims(t, database, 20)
			change := input.Change{Actor: "test"}
			_, _, err := s.PutCalendar(t.Context(), dispatcher.Calendar{App: "app", Name: "freeze"}, change)
			must(t, err)
			_, err = s.PauseJob(t.Context(), "app", "job", "t0", true, change)
			must(t, err)
			job, err := s.Job(t.Context(), "app", "job")
			must(t, err)
			// In PostgreSQL, this mode allows reading, but neither writing nor locking of rows.
			release, err := store.Freeze(t.Context(), s, map[string]string{
				"SQLite":     `UPDATE installation SET id = id`,
				"PostgreSQL": `LOCK TABLE apps, jobs, triggers, trigger_clock, trigger_revisions, calendars, audit_log IN EXCLUSIVE MODE`,
			}[name])
			must(t, err)
			defer release()
			for range 3 {
				_, _, err = s.PutApp(t.Context(), access.App{Name: "app", AppSpec: access.AppSpec{Enabled: true}}, change)
				must(t, err)
				_, _, err = s.PutCalendar(t.Context(), dispatcher.Calendar{App: "app", Name: "freeze"}, change)
				must(t, err)
				same, _, err := s.PutJob(t.Context(), job, change)
				if err != nil || same.Revision != job.Revision {
					t.Errorf("put the job again: revision %d, %v, want %d", same.Revision, err, job.Revision)
				}
				_, err = s.PauseJob(t.Context(), "app", "job", "t0", true, change)
				must(t, err)
				_, err = s.PauseJob(t.Context(), "app", "job", "", false, change)
				must(t, err)
			}
		})
	}
}

// The snapshot of a change saves locks. If it fails, as during a failover of the database, the transaction works
// without. On SQLite, reads have separate connections, which a test can close.
func TestChangeWorksWithoutItsSnapshot(t *testing.T) {
	t.Parallel()
	s := ownClaims(t, sqlitetest.New(t), 20)
	change := input.Change{Actor: "test"}
	job, err := s.Job(t.Context(), "app", "job")
	must(t, err)
	must(t, store.CloseReads(s))
	job.Description = "changed"
	stored, created, err := s.PutJob(t.Context(), job, change)
	if err != nil || created || stored.Revision != job.Revision+1 {
		t.Errorf("put a job: revision %d, created %v, %v; want %d", stored.Revision, created, err, job.Revision+1)
	}
	_, _, err = s.PutCalendar(t.Context(), dispatcher.Calendar{App: "app", Name: "freeze"}, change)
	must(t, err)
}
