package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/store/pgtest"
)

// BenchmarkPutCalendar measures a change of a calendar that 100,000 triggers name.
func BenchmarkPutCalendar(b *testing.B) {
	b.Run("PostgreSQL", func(b *testing.B) { benchPutCalendar(b, open(b, pgtest.New(b, pgtest.Fsync))) })
	b.Run("SQLite", func(b *testing.B) { benchPutCalendar(b, open(b, newFile(b))) })
}

func benchPutCalendar(b *testing.B, s dispatcher.Store) {
	const jobs = 1000 // a hundred triggers each
	start := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	change := dispatcher.Change{Actor: "bench", Now: start}
	_, err := s.PutApp(b.Context(), dispatcher.App{Name: "bench", Enabled: true}, change)
	must(b, err)
	put := func(days ...string) {
		_, err := s.PutCalendar(b.Context(), dispatcher.Calendar{
			App: "bench", Name: "holidays", Timezone: "Europe/Berlin",
			Rules: []schedule.CalendarRule{{Weekdays: []string{"SAT", "SUN"}}, {Dates: days}},
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
