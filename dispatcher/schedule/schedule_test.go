package schedule_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

func mustParse(t rapid.TB, spec schedule.Spec) *schedule.Schedule {
	t.Helper()
	s, err := schedule.Parse(spec)
	if err != nil {
		t.Fatalf("Parse(%+v): %v", spec, err)
	}
	return s
}

// utc formats instants for comparison.
func utc(times []time.Time) []string {
	var out []string
	for _, at := range times {
		out = append(out, at.Format(time.RFC3339Nano))
	}
	return out
}

var farFuture = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

func TestNextReturnsTheFirstInstantAfter(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		spec schedule.Spec
		from string
		want []string
	}{
		"an instant is not its own next": {
			schedule.Spec{Expression: "0/5 * * * * ?"}, "2026-03-29T01:00:05Z",
			[]string{"2026-03-29T01:00:10Z", "2026-03-29T01:00:15Z"},
		},
		"a fraction of a second before an instant gives the instant": {
			schedule.Spec{Expression: "0/5 * * * * ?"}, "2026-03-29T01:00:04.9999999Z",
			[]string{"2026-03-29T01:00:05Z"},
		},
		"weekdays of crontab and quartz differ": {
			schedule.Spec{Expression: "0 0 * * 1"}, "2026-01-01T00:00:00Z", []string{"2026-01-05T00:00:00Z"},
		},
		"quartz counts weekdays from Sunday, 1": {
			schedule.Spec{Expression: "0 0 0 ? * 1"}, "2026-01-01T00:00:00Z", []string{"2026-01-04T00:00:00Z"},
		},
		"crontab's two restricted day fields are either-or": {
			schedule.Spec{Expression: "0 0 13 * 5"}, "2026-01-01T00:00:00Z",
			[]string{"2026-01-02T00:00:00Z", "2026-01-09T00:00:00Z", "2026-01-13T00:00:00Z"},
		},
		"crontab's day field that begins with a star must match too": {
			schedule.Spec{Expression: "0 0 */2 * 5"}, "2026-01-01T00:00:00Z",
			[]string{"2026-01-09T00:00:00Z", "2026-01-23T00:00:00Z"},
		},
		"ranges wrap in quartz": {
			schedule.Spec{Expression: "0 0 22-2/2 ? NOV-FEB FRI-MON"}, "2026-01-30T23:00:00Z",
			[]string{"2026-01-31T00:00:00Z", "2026-01-31T02:00:00Z", "2026-01-31T22:00:00Z"},
		},
		"day 31 skips shorter months": {
			schedule.Spec{Expression: "0 0 0 31 * ?"}, "2026-01-31T00:00:00Z",
			[]string{"2026-03-31T00:00:00Z", "2026-05-31T00:00:00Z"},
		},
		"lists mix kinds of days": {
			schedule.Spec{Expression: "0 0 0 1,15W,L-2 * ?"}, "2026-01-31T00:00:00Z",
			[]string{"2026-02-01T00:00:00Z", "2026-02-16T00:00:00Z", "2026-02-26T00:00:00Z"},
		},
		"a fire beyond 2099": {
			schedule.Spec{Expression: "0 0 29 2 *"}, "2096-02-29T00:00:00Z", []string{"2104-02-29T00:00:00Z"},
		},
		"years end": {
			schedule.Spec{Expression: "0 0 0 1 1 ? 2026"}, "2026-01-01T00:00:00Z", nil,
		},
		"rate without start counts from the anchor, without firing there": {
			schedule.Spec{Expression: "rate(90s)", Anchor: instant(t, "2026-01-01T00:00:00.250Z")}, "2020-01-01T00:00:00Z",
			[]string{"2026-01-01T00:01:30.25Z", "2026-01-01T00:03:00.25Z"},
		},
		"rate with start fires at the start": {
			schedule.Spec{Expression: "rate(90s)", StartAt: instant(t, "2026-01-01T00:00:00Z")}, "2020-01-01T00:00:00Z",
			[]string{"2026-01-01T00:00:00Z", "2026-01-01T00:01:30Z"},
		},
		"an instant with its offset": {
			schedule.Spec{Expression: "at(2026-05-01T10:00:00.1239+02:00)"}, "2020-01-01T00:00:00Z",
			[]string{"2026-05-01T08:00:00.123Z"},
		},
		"a local instant in a zone": {
			schedule.Spec{Expression: "at(2026-05-01T10:00:00)", Timezone: "Europe/Berlin"}, "2020-01-01T00:00:00Z",
			[]string{"2026-05-01T08:00:00Z"},
		},
		"a local instant in a gap fires when the gap ends": {
			schedule.Spec{Expression: "at(2026-03-29T02:30:00)", Timezone: "Europe/Berlin"}, "2020-01-01T00:00:00Z",
			[]string{"2026-03-29T01:00:00Z"},
		},
		"a local instant that comes twice fires at its last pass": {
			schedule.Spec{Expression: "at(2026-10-25T02:30:00)", Timezone: "Europe/Berlin"}, "2020-01-01T00:00:00Z",
			[]string{"2026-10-25T01:30:00Z"},
		},
		"a local instant that comes twice fires at its first pass on request": {
			schedule.Spec{Expression: "at(2026-10-25T02:30:00)", Timezone: "Europe/Berlin", Overlap: schedule.OverlapFirst},
			"2020-01-01T00:00:00Z", []string{"2026-10-25T00:30:00Z"},
		},
		"macros": {
			schedule.Spec{Expression: "@monthly", Timezone: "Asia/Kolkata"}, "2026-01-15T00:00:00Z",
			[]string{"2026-01-31T18:30:00Z", "2026-02-28T18:30:00Z"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limit := max(len(tt.want), 1)
			got := utc(timesBetween(mustParse(t, tt.spec), instant(t, tt.from), farFuture, limit))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("instants after %s (-want +got):\n%s", tt.from, diff)
			}
		})
	}
}

func TestDaylightSavingFollowsTheRules(t *testing.T) {
	t.Parallel()
	const gapNight, overlapNight = "2026-03-28T22:00:00Z", "2026-10-24T22:00:00Z" // Berlin, midnight or so
	for name, tt := range map[string]struct {
		spec schedule.Spec
		from string
		want []string
	}{
		"a skipped time does not fire": {
			schedule.Spec{Expression: "30 2 * * *"}, gapNight,
			[]string{"2026-03-30T00:30:00Z"},
		},
		"gap next fires once when the gap ends, for any number of skipped times": {
			schedule.Spec{Expression: "*/20 2 * * *", Gap: schedule.GapNext}, gapNight,
			[]string{"2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z", "2026-03-30T00:20:00Z"},
		},
		"gap next does not double a fire at the end of the gap": {
			schedule.Spec{Expression: "0 2,3 * * *", Gap: schedule.GapNext}, gapNight,
			[]string{"2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"},
		},
		"gap next from the second before the gap's end": {
			schedule.Spec{Expression: "30 2 * * *", Gap: schedule.GapNext}, "2026-03-29T00:59:59.999Z",
			[]string{"2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"},
		},
		"a repeated time fires at its last pass": {
			schedule.Spec{Expression: "30 2 * * *"}, overlapNight,
			[]string{"2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"},
		},
		"overlap first": {
			schedule.Spec{Expression: "30 2 * * *", Overlap: schedule.OverlapFirst}, overlapNight,
			[]string{"2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"},
		},
		"overlap both": {
			schedule.Spec{Expression: "30 2 * * *", Overlap: schedule.OverlapBoth}, overlapNight,
			[]string{"2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"},
		},
		"an expression of all 24 hours fires in both passes": {
			schedule.Spec{Expression: "30 0-23 * * *"}, "2026-10-25T00:00:00Z",
			[]string{"2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:30:00Z"},
		},
		"unless it asks for one": {
			schedule.Spec{Expression: "30 0-23 * * *", Overlap: schedule.OverlapLast}, "2026-10-25T00:00:00Z",
			[]string{"2026-10-25T01:30:00Z", "2026-10-25T02:30:00Z"},
		},
		"intervals ignore it": {
			schedule.Spec{Expression: "rate(1h)", StartAt: instant(t, "2026-10-25T00:15:00Z")}, overlapNight,
			[]string{"2026-10-25T00:15:00Z", "2026-10-25T01:15:00Z", "2026-10-25T02:15:00Z"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.spec.Timezone = "Europe/Berlin"
			got := utc(timesBetween(mustParse(t, tt.spec), instant(t, tt.from), farFuture, len(tt.want)))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("instants after %s (-want +got):\n%s", tt.from, diff)
			}
		})
	}
}

func TestBoundsAreInclusiveAndRepeatCountIsTheTotal(t *testing.T) {
	t.Parallel()
	start, end := instant(t, "2026-01-01T00:00:02Z"), instant(t, "2026-01-01T00:00:10Z")
	for name, tt := range map[string]struct {
		spec schedule.Spec
		want []string
	}{
		"cron fires at start and at end": {
			schedule.Spec{Expression: "0/4 * * * * ?", StartAt: start.Add(2 * time.Second), EndAt: end.Add(-2 * time.Second)},
			[]string{"2026-01-01T00:00:04Z", "2026-01-01T00:00:08Z"},
		},
		"interval fires at start and at end": {
			schedule.Spec{Expression: "rate(4s)", StartAt: start, EndAt: end},
			[]string{"2026-01-01T00:00:02Z", "2026-01-01T00:00:06Z", "2026-01-01T00:00:10Z"},
		},
		"a start with milliseconds is not rounded down": {
			schedule.Spec{Expression: "* * * * * ?", StartAt: start.Add(time.Millisecond), EndAt: start.Add(time.Second)},
			[]string{"2026-01-01T00:00:03Z"},
		},
		"one instant at the only moment allowed": {
			schedule.Spec{Expression: "2026-01-01T00:00:02Z", StartAt: start, EndAt: start},
			[]string{"2026-01-01T00:00:02Z"},
		},
		"interval with a count from its start": {
			schedule.Spec{Expression: "rate(4s)", StartAt: start, RepeatCount: 2},
			[]string{"2026-01-01T00:00:02Z", "2026-01-01T00:00:06Z"},
		},
		"interval with a count from its anchor": {
			schedule.Spec{Expression: "rate(4s)", Anchor: start, RepeatCount: 2},
			[]string{"2026-01-01T00:00:06Z", "2026-01-01T00:00:10Z"},
		},
		"cron with a count includes its start": {
			schedule.Spec{Expression: "0/2 * * * * ?", StartAt: start, RepeatCount: 3},
			[]string{"2026-01-01T00:00:02Z", "2026-01-01T00:00:04Z", "2026-01-01T00:00:06Z"},
		},
		"cron with a count excludes its anchor": {
			schedule.Spec{Expression: "0/2 * * * * ?", Anchor: start, RepeatCount: 2},
			[]string{"2026-01-01T00:00:04Z", "2026-01-01T00:00:06Z"},
		},
		"the end comes before the count": {
			schedule.Spec{Expression: "0/2 * * * * ?", StartAt: start, EndAt: start.Add(2 * time.Second), RepeatCount: 100},
			[]string{"2026-01-01T00:00:02Z", "2026-01-01T00:00:04Z"},
		},
		"a window without an instant": {
			schedule.Spec{Expression: "0 0 0 1 6 ?", StartAt: start, EndAt: end}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := mustParse(t, tt.spec)
			from := start.Add(-time.Hour)
			if tt.spec.StartAt.IsZero() {
				from = start
			}
			if diff := cmp.Diff(tt.want, utc(timesBetween(s, from, farFuture, 10))); diff != "" {
				t.Errorf("instants (-want +got):\n%s", diff)
			}
			if got := s.Count(from, farFuture, 10); got != len(tt.want) {
				t.Errorf("Count = %d, want %d", got, len(tt.want))
			}
		})
	}
}

func TestCountOfALongIntervalIsImmediate(t *testing.T) {
	t.Parallel()
	const start = 946_684_800 // 2000-01-01
	s := mustParse(t, schedule.Spec{Expression: "rate(1s)", StartAt: time.Unix(start, 0)})
	a, b := time.Unix(start, 0), time.Unix(start+200_000_000_000, 0)
	if got, want := s.Count(a, b, 1<<62), 200_000_000_000; got != want {
		t.Errorf("Count = %d, want %d", got, want)
	}
	if got := s.Count(a, b, 7); got != 7 {
		t.Errorf("Count with limit 7 = %d", got)
	}
	if got := s.Count(b, a, 7); got != 0 {
		t.Errorf("Count of an empty range = %d, want 0", got)
	}
}

func TestNextHandlesExtremeTimes(t *testing.T) {
	t.Parallel()
	for _, expr := range []string{"* * * * *", "0 0 29 2 *", "rate(1s)", "at(2026-01-01T00:00:00Z)"} {
		s := mustParse(t, schedule.Spec{Expression: expr, Timezone: "America/New_York"})
		if next, ok := s.Next(time.Time{}); !ok || next.Year() < 1969 && expr != "rate(1s)" {
			t.Errorf("%q: Next(year 1) = %v, %v", expr, next, ok)
		}
		for _, far := range []time.Time{farFuture, time.Unix(1<<61, 0), time.Unix(1<<40, 0)} {
			if next, ok := s.Next(far); ok && !next.After(far) {
				t.Errorf("%q: Next(%v) = %v, which is not after it", expr, far, next)
			}
		}
	}
}

func TestCacheReturnsTheSameAsParse(t *testing.T) {
	t.Parallel()
	cache := schedule.NewCache(3)
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := range 200 {
				spec := schedule.Spec{
					Expression: fmt.Sprintf("%d * * * *", i%7), Timezone: "Europe/Berlin", RepeatCount: i % 3,
					Anchor: time.Unix(int64(1_800_000_000+worker), 0),
				}
				if i%5 == 0 {
					spec.Expression = "61 * * * *"
				}
				got, gotErr := cache.Parse(spec)
				want, wantErr := schedule.Parse(spec)
				if diff := cmp.Diff(fmt.Sprint(wantErr), fmt.Sprint(gotErr)); diff != "" {
					t.Errorf("error (-want +got):\n%s", diff)
				}
				if wantErr != nil {
					continue
				}
				from := time.Unix(1_800_000_000, 0)
				if diff := cmp.Diff(utc(timesBetween(want, from, farFuture, 3)), utc(timesBetween(got, from, farFuture, 3))); diff != "" {
					t.Errorf("instants (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(want.Spec(), got.Spec()); diff != "" {
					t.Errorf("spec (-want +got):\n%s", diff)
				}
			}
		})
	}
	wg.Wait()
}

// Go's ZoneBounds is wrong on the last day of leap years after 2037.
func TestSchedulesFireOnTheLastDayOfFarLeapYears(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"Europe/Berlin", "Australia/Sydney", "America/New_York"} {
		s := mustParse(t, schedule.Spec{Expression: "0 30 12 * * ?", Timezone: zone})
		for _, year := range []int{2040, 2096, 2104} {
			loc, known := schedule.Location(zone) // the program's rules, because hosts have others
			if !known {
				t.Fatalf("no zone %s", zone)
			}
			from := time.Date(year, 12, 30, 12, 30, 0, 0, loc)
			want := []string{from.AddDate(0, 0, 1).UTC().Format(time.RFC3339), from.AddDate(0, 0, 2).UTC().Format(time.RFC3339)}
			if diff := cmp.Diff(want, utc(timesBetween(s, from, farFuture, 2))); diff != "" {
				t.Errorf("%s %d (-want +got):\n%s", zone, year, diff)
			}
		}
	}
}

// timesBetween is Between without what follows a search that is given up.
func timesBetween(s *schedule.Schedule, a, b time.Time, limit int) []time.Time {
	times, _ := s.Between(a, b, limit)
	return times
}
