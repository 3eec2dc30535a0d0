package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// BenchmarkPutCalendar measures a change of a calendar that 100,000 triggers name.
func BenchmarkPutCalendar(b *testing.B) {
	b.Run("PostgreSQL", func(b *testing.B) { benchPutCalendar(b, open(b, pgtest.New(b, pgtest.Fsync))) })
	b.Run("SQLite", func(b *testing.B) { benchPutCalendar(b, open(b, newFile(b))) })
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
