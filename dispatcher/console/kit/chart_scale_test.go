package kit

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

func TestTicksAreAtEvenLocalTimes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		zone, from, to string
		most           int
		want           []string
	}{
		"a day in UTC": {"UTC", "2026-05-01T00:00:00Z", "2026-05-02T00:00:00Z", 5, []string{"05-01 Z", "06:00", "12:00",
			"18:00", "05-02"}},
		"a zone that is half an hour off": {"Asia/Kolkata", "2026-05-01T00:00:00Z", "2026-05-01T06:00:00Z", 4, []string{"06:00 +05:30", "08:00",
			"10:00"}},
		"the night with 25 hours": {"Europe/Berlin", "2026-10-24T22:00:00Z", "2026-10-25T02:00:00Z", 5, []string{"10-25 +02:00", "01:00",
			"02:00", "02:00 +01:00", "03:00"}},
		"the night with 23 hours": {"Europe/Berlin", "2026-03-28T23:00:00Z", "2026-03-29T02:00:00Z", 5, []string{"03-29 +01:00", "01:00",
			"03:00 +02:00", "04:00"}},
		"a month": {"UTC", "2026-05-01T00:00:00Z", "2026-05-31T00:00:00Z", 6, []string{"05-07 Z", "05-14", "05-21",
			"05-28"}},
		"a night of half an hour (Lord Howe)": {"Australia/Lord_Howe", "2026-04-04T14:30:00Z", "2026-04-04T15:30:00Z", 4, []string{"01:30 +11:00",
			"01:30 +10:30", "02:00"}},
		"nothing": {"UTC", "2026-05-01T00:10:00Z", "2026-05-01T00:10:00Z", 5, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			zone, err := time.LoadLocation(tt.zone)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, one := range (Span{timeAt(t, tt.from), timeAt(t, tt.to)}).ticks(zone, tt.most, 100) {
				got = append(got, strings.TrimSpace(one.Label+" "+one.Offset))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got ticks %v, want %v", got, tt.want)
			}
		})
	}
}

func TestAxesOfSequencesHaveDatesWithOffsetsAtTheirEnds(t *testing.T) {
	t.Parallel()
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	first, last := timeAt(t, "2026-03-28T01:00:00Z").In(zone), timeAt(t, "2026-03-29T01:00:00Z").In(zone)
	got := NewDurationBars([]Bar{{Value: 1, At: first}, {Value: 1, At: last}}, time.Duration.String).Ticks
	want := []tick{{0, "2026-03-28 02:00", "+01:00"}, {barsWidth, "2026-03-29 03:00", "+02:00"}}
	if !slices.Equal(got, want) {
		t.Fatalf("got ticks %v, want %v", got, want)
	}
	if got[0].Percent() != 0 || got[0].Anchor() != "start" || got[1].Percent() != 100 || got[1].Anchor() != "end" {
		t.Errorf("the labels are at %v %s and %v %s, want 0 start and 100 end",
			got[0].Percent(), got[0].Anchor(), got[1].Percent(), got[1].Anchor())
	}
	if one := NewDurationBars([]Bar{{Value: 1, At: first}}, time.Duration.String).Ticks; len(one) != 1 {
		t.Errorf("one value has the ticks %v, want one", one)
	}
}

func TestTimesOutsideTheAxisAreAtItsEnds(t *testing.T) {
	t.Parallel()
	axis := Span{timeAt(t, "2026-05-01T00:00:00Z"), timeAt(t, "2026-05-01T10:00:00Z")}
	for at, want := range map[string]float64{
		"2026-04-30T00:00:00Z": 0, "2026-05-01T00:00:00Z": 0, "2026-05-01T05:00:00Z": 50, "2026-05-02T00:00:00Z": 100,
	} {
		if got := axis.X(timeAt(t, at), 100); got != want {
			t.Errorf("x of %s is %v, want %v", at, got, want)
		}
	}
}

func TestTopsOfAxesAreEven(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]time.Duration{
		time.Microsecond: time.Millisecond, 3 * time.Millisecond: 5 * time.Millisecond, 40 * time.Second: 50 * time.Second,
		55 * time.Second: time.Minute, 3 * time.Minute: 5 * time.Minute, 90 * time.Minute: 2 * time.Hour, 50 * time.Hour: 72 * time.Hour,
	} {
		if got := ceilDuration(d); got != want {
			t.Errorf("the top above %s is %s, want %s", d, got, want)
		}
	}
	for count, want := range map[int]int{0: 1, 1: 1, 3: 5, 6: 10, 288: 500, 1001: 2000} {
		if got := ceilCount(count); got != want {
			t.Errorf("the top above %d is %d, want %d", count, got, want)
		}
	}
}

func TestBarsShowEveryValueThatIsNotZero(t *testing.T) {
	t.Parallel()
	format := func(d time.Duration) string { return d.String() }
	got := NewDurationBars([]Bar{
		{Value: float64(time.Second)}, {Value: 0}, {Value: 1}, {Value: 0},
	}, format)
	if got.Top != "1s" || len(got.Marks) != 2 {
		t.Fatalf("got top %s and %d marks, want 1s and 2", got.Top, len(got.Marks))
	}
	for i, want := range []barMark{
		{X: 0, Y: 0, Width: 144, Height: 120}, {X: 360, Y: 118, Width: 144, Height: 2},
	} {
		if got.Marks[i] != want {
			t.Errorf("mark %d is %+v, want %+v", i, got.Marks[i], want)
		}
	}
	if none := NewDurationBars(nil, format); len(none.Marks) != 0 {
		t.Errorf("got %d marks of nothing", len(none.Marks))
	}
}

func timeAt(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestBytesAreShortAndRatesAreNotTooGood(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		0: "0\u00a0B", 1023: "1023\u00a0B", 10600: "10.4\u00a0KiB", 10 << 30: "10\u00a0GiB", 1 << 50: "1024\u00a0TiB",
	} {
		if got := Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %q, want %q", n, got, want)
		}
	}
	for want, runs := range map[string]map[run.State]int64{
		"–": {"skipped": 3}, "99.9 %": {"succeeded": 99_999, "lost": 1, "skipped": 7}, "100.0 %": {"succeeded": 3, "cancelled": 1},
		"0.0 %": {"failed": 1},
	} {
		row := DayRow{DayStatistics: view.DayStatistics{Runs: runs}}
		for _, n := range runs {
			row.Total += n
		}
		if got := row.Rate(); got != want {
			t.Errorf("the rate of %v is %s, want %s", runs, got, want)
		}
	}
}
