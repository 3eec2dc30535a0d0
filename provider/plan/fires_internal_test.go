package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// parsed returns the schedule of an expression and a zone, separated by a space and an @; "" is nil.
func parsed(t *testing.T, text string, anchor time.Time) *schedule.Schedule {
	t.Helper()
	if text == "" {
		return nil
	}
	expression, rest, _ := strings.Cut(text, " @")
	zone, jitter, _ := strings.Cut(rest, " ~")
	spread, _ := time.ParseDuration(jitter)
	s, err := schedule.Parse(schedule.Spec{Expression: expression, Timezone: zone, Anchor: anchor, Identity: "a/b/c", Jitter: spread})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestChangesOfFiresAreCounted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ now, before, after, day, fortnight string }{
		"an hour later": {
			"2026-11-23T05:00:00Z", "0 30 2 * * ? @Asia/Tokyo", "0 30 3 * * ? @Asia/Tokyo", "1 moved 1h later", "14 moved 1h later",
		},
		"an hour earlier": {
			"2026-11-23T05:00:00Z", "0 30 2 * * ? @UTC", "0 30 1 * * ? @UTC", "1 moved 1h earlier", "14 moved 1h earlier",
		},
		"earlier than now, so today's fire is lost": {
			"2026-11-23T02:00:00Z", "0 30 2 * * ? @UTC", "0 30 1 * * ? @UTC",
			"1 removed, 1 moved 1h earlier", "1 removed, 14 moved 1h earlier",
		},
		"later than now, so the job fires again today": {
			"2026-11-23T03:00:00Z", "0 30 2 * * ? @UTC", "0 30 3 * * ? @UTC", "1 added, 1 moved 1h later", "1 added, 14 moved 1h later",
		},
		"another zone": {
			"2026-11-23T05:00:00Z", "0 30 2 * * ? @UTC", "0 30 2 * * ? @Europe/Berlin", "1 moved 1h earlier", "14 moved 1h earlier",
		},
		"another zone, across the start of summer time": {
			"2026-03-22T05:00:00Z", "0 30 4 * * ? @UTC", "0 30 4 * * ? @Europe/Berlin",
			"1 moved 1h earlier", "14 moved up to 2h earlier",
		},
		"half as often": {
			"2026-11-23T05:10:00Z", "*/10 * * * * @UTC", "*/20 * * * * @UTC", "72 removed", "1008 removed",
		},
		"weekdays only": {"2026-11-23T05:00:00Z", "0 2 * * * @UTC", "0 2 * * 1-5 @UTC", "no change", "4 removed"},
		"minutely is compared for a day": {
			"2026-11-23T05:00:00Z", "* * * * * @UTC", "*/2 * * * * @UTC", "720 removed", "at least 1250 removed",
		},
		"every second is too much": {
			"2026-11-23T05:00:00Z", "* * * * * ? @UTC", "0 * * * * ? @UTC", "at least 2459 removed", "at least 2459 removed",
		},
		"the same fires under another name": {"2026-11-23T05:00:00Z", "@daily @UTC", "0 0 * * * @UTC", "no change", "no change"},
		"a new trigger":                     {"2026-11-23T05:00:00Z", "", "@daily @UTC", "1 added", "14 added"},
		"a removed trigger":                 {"2026-11-23T05:00:00Z", "@daily @UTC", "", "1 removed", "14 removed"},
		"jitter": {
			"2026-11-23T05:00:00Z", "0 2 * * * @UTC", "0 2 * * * @UTC ~1h", "1 moved 31m28s later", "14 moved up to 59m38s later",
		},
		"hours become one time of day": {
			"2026-11-23T05:00:00Z", "0 * * * * @UTC", "30 2 * * * @UTC", "23 removed, 1 moved 30m later", "322 removed, 14 moved 30m later",
		},
		"far apart is no move": {
			"2026-11-23T05:00:00Z", "0 6 * * 1 @UTC", "0 6 * * 3 @UTC", "1 removed", "2 removed, 2 added",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now, err := time.Parse(time.RFC3339, tt.now)
			if err != nil {
				t.Fatal(err)
			}
			got := compareFires(schedule.NewSteps(firesBudget), parsed(t, tt.before, now), parsed(t, tt.after, now), now)
			if got := got.counts[0].text(); got != tt.day {
				t.Errorf("a day: %s, want %s", got, tt.day)
			}
			if got := got.counts[1].text(); got != tt.fortnight {
				t.Errorf("two weeks: %s, want %s", got, tt.fortnight)
			}
		})
	}
}

func TestFiresAreShownOnTheWallClock(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 26, 12, 0, 0, 0, time.UTC)
	before, after := parsed(t, "0 30 2 * * ? @Europe/Berlin", now), parsed(t, "0 30 4 1 * ? @Europe/Berlin", now)
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	want := `  next 24 hours  1 removed
  next 14 days   12 removed, 1 moved 2h later

  before                       after
  Fri 2026-03-27 02:30 +01:00  Wed 2026-04-01 04:30 +02:00
  Sat 2026-03-28 02:30 +01:00  Fri 2026-05-01 04:30 +02:00
  Mon 2026-03-30 02:30 +02:00  Mon 2026-06-01 04:30 +02:00
  Tue 2026-03-31 02:30 +02:00  Wed 2026-07-01 04:30 +02:00
  Wed 2026-04-01 02:30 +02:00  Sat 2026-08-01 04:30 +02:00
`
	got := compareFires(schedule.NewSteps(firesBudget), before, after, now).text(zone)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	want = `  next 24 hours  1 removed
  next 14 days   13 removed

  before                       after
  Fri 2026-03-27 02:30 +01:00  no fire
  Sat 2026-03-28 02:30 +01:00
  Mon 2026-03-30 02:30 +02:00
  Tue 2026-03-31 02:30 +02:00
  Wed 2026-04-01 02:30 +02:00
`
	got = compareFires(schedule.NewSteps(firesBudget), before, nil, now).text(zone)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("text of a removed trigger (-want +got):\n%s", diff)
	}
}

func TestComparingFiresIsBounded(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 5, 0, 0, 0, time.UTC)
	budget := schedule.NewSteps(firesBudget)
	compareFires(budget, parsed(t, "* * * * * ? @UTC", now), parsed(t, "0/2 * * * * ? @UTC", now), now)
	if used := budget.Used(); used > firesBudget {
		t.Errorf("%d steps were taken, want at most %d", used, firesBudget)
	}
}

func TestEffectOfAChangeOfFiresIsShort(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ before, after, want string }{
		"later":          {"0 30 2 * * ? @UTC", "0 30 3 * * ? @UTC", "each fire 1h later"},
		"rare and later": {"0 0 3 1 6 ? @UTC", "0 0 4 1 6 ? @UTC", "each fire 1h later"},
		"new":            {"", "@daily @UTC", "fires added"},
		"gone":           {"@hourly @UTC", "@daily @UTC", "fires removed"},
		"others":         {"0 2 * * 1 @UTC", "0 2 * * 3 @UTC", "other fires"},
		"too many":       {"* * * * * ? @UTC", "0 * * * * ? @UTC", "fires too many to compare"},
		"rare and other": {"0 0 3 1 6 ? @UTC", "0 0 3 2 7 ? @UTC", "each fire 744h later"},
	} {
		now := time.Date(2026, 11, 23, 5, 0, 0, 0, time.UTC)
		compared := compareFires(schedule.NewSteps(firesBudget), parsed(t, tt.before, now), parsed(t, tt.after, now), now)
		if got := compared.effect(); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
