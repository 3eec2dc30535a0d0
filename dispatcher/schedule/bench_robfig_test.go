package schedule_test

import (
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// BenchmarkAgainstRobfig measures this package and robfig/cron in turn, in one run. It reports the
// time of robfig/cron divided by ours (x-robfig; 1 or more means that we are at least as fast).
// Both get the zone as a user would write it: ours as a field, theirs before the expression.
func BenchmarkAgainstRobfig(b *testing.B) {
	from := time.Date(2026, 6, 15, 12, 34, 56, 0, time.UTC)
	for _, zone := range []string{"America/New_York", ""} {
		for _, tt := range typical {
			spec, text := schedule.Spec{Expression: tt.expr, Timezone: zone}, tt.expr
			if zone != "" {
				text = "CRON_TZ=" + zone + " " + text
			} else {
				zone = "UTC"
				text = "CRON_TZ=UTC " + text
			}
			ours := mustParse(b, spec)
			theirs, err := cron.ParseStandard(text)
			if err != nil {
				b.Fatal(err)
			}
			// The comparison is only meaningful if both are right.
			for us, it, n := from, from, 0; n < 50; n++ {
				next, _ := ours.Next(us)
				if us, it = next, theirs.Next(it); !us.Equal(it) {
					b.Fatalf("%s in %s: we say %v, robfig/cron %v", tt.expr, zone, us, it.UTC())
				}
			}
			b.Run("next/"+zone+"/"+tt.name, func(b *testing.B) {
				at := from
				compare(b, func() {
					if at, _ = ours.Next(at); at.Year() > 2035 {
						at = from
					}
				}, func() { theirs.Next(at) })
			})
			b.Run("parse/"+zone+"/"+tt.name, func(b *testing.B) {
				compare(b, func() { mustParse(b, spec) }, func() { _, _ = cron.ParseStandard(text) })
			})
			if zone == "UTC" {
				zone = ""
			}
		}
	}
}

// compare times both in short turns, so that other load on the machine affects both alike.
func compare(b *testing.B, ours, theirs func()) {
	const turn = 100
	var us, it time.Duration
	for b.Loop() {
		for _, side := range []struct {
			step  func()
			spent *time.Duration
		}{{ours, &us}, {theirs, &it}} {
			begin := time.Now()
			for range turn {
				side.step()
			}
			*side.spent += time.Since(begin) // wall clock: a benchmark
		}
	}
	b.ReportMetric(float64(it)/float64(us), "x-robfig")
	b.ReportMetric(float64(us.Nanoseconds())/float64(b.N*turn), "ns/ours")
	b.ReportMetric(0, "ns/op") // of both together
}
