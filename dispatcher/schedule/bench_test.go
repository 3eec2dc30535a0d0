package schedule_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// typical are the measured expressions, in a zone with daylight saving.
var typical = []struct{ name, expr string }{
	{"every 5 minutes", "*/5 * * * *"},
	{"hourly", "0 * * * *"},
	{"nightly", "30 3 * * *"},
	{"weekdays", "0 9 * * 1-5"},
	{"yearly", "0 0 1 1 *"},
}

func BenchmarkNext(b *testing.B) {
	for _, tt := range typical {
		b.Run(tt.name, func(b *testing.B) {
			s := mustParse(b, schedule.Spec{Expression: tt.expr, Timezone: "America/New_York"})
			from := time.Date(2026, 6, 15, 12, 34, 56, 0, time.UTC)
			at := from
			b.ReportAllocs()
			for b.Loop() {
				next, ok := s.Next(at)
				if !ok || next.Year() > 2035 {
					next = from
				}
				at = next
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	for _, tt := range typical {
		b.Run(tt.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				mustParse(b, schedule.Spec{Expression: tt.expr, Timezone: "America/New_York"})
			}
		})
	}
}

func BenchmarkParseAndFirstNext(b *testing.B) {
	from := time.Date(2026, 6, 15, 12, 34, 56, 0, time.UTC)
	for _, tt := range typical {
		b.Run(tt.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				mustParse(b, schedule.Spec{Expression: tt.expr, Timezone: "America/New_York"}).Next(from)
			}
		})
	}
}

// BenchmarkMillionTriggers computes the next fire of every trigger, as a node does when it starts.
func BenchmarkMillionTriggers(b *testing.B) {
	const triggers, distinct = 1_000_000, 1_000
	specs := make([]schedule.Spec, distinct)
	for i := range specs {
		specs[i] = schedule.Spec{Expression: fmt.Sprintf("%d %d-23/%d * * *", i%60, i/60, 1+i%7), Timezone: "America/New_York"}
	}
	from := time.Date(2026, 6, 15, 12, 34, 56, 0, time.UTC)
	for b.Loop() {
		cache := schedule.NewCache(distinct)
		for i := range triggers {
			spec := specs[i%distinct]
			spec.Anchor = from.Add(time.Duration(i) * time.Millisecond)
			s, err := cache.Parse(spec)
			if err != nil {
				b.Fatal(err)
			}
			if _, ok := s.Next(from); !ok {
				b.Fatal("no next fire")
			}
		}
	}
}
