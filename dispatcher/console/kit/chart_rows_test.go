package kit

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
)

func TestHerdsAreNamed(t *testing.T) {
	t.Parallel()
	from := timeAt(t, "2026-05-01T00:00:00Z")
	counts := make([]int, 288)
	for i := range counts {
		counts[i] = 1
	}
	counts[24], counts[36] = 400, 12
	c := NewUpcoming(from, 5*time.Minute, counts, time.UTC, func(at time.Time, count int) string {
		return fmt.Sprint(at.Format("15:04"),
			" ", count)
	})
	if c.Total != 286+412 || c.Bars.Top != "500" || len(c.Hours) != 24 || c.Hours[2].Count != 411 {
		t.Errorf("got total %d, top %s, %d hours, %d fires in the third", c.Total, c.Bars.Top, len(c.Hours), c.Hours[2].Count)
	}
	if len(c.Peaks) != 3 || !c.Peaks[0].Herd || c.Peaks[0].Count != 400 || !c.Peaks[0].At.Equal(timeAt(t, "2026-05-01T02:00:00Z")) ||
		c.Peaks[0].Times != 165 {
		t.Errorf("got peaks %+v, want 400 fires at 02:00 first, a herd of 165 times the mean", c.Peaks)
	}
	if c.Peaks[1].Herd || c.Peaks[1].Count != 12 {
		t.Errorf("got second peak %+v, want 12 fires, which are no herd", c.Peaks[1])
	}
	if c.Bars.Marks[24].Title != "02:00 400" {
		t.Errorf("got title %q", c.Bars.Marks[24].Title)
	}
}

func TestEvenLoadHasNoHerd(t *testing.T) {
	t.Parallel()
	counts := slices.Repeat([]int{500}, 288)
	for _, p := range peaks(time.Time{}, 5*time.Minute, counts) {
		if p.Herd {
			t.Errorf("%+v is called a herd", p)
		}
	}
	if got := peaks(time.Time{}, 5*time.Minute, make([]int, 288)); len(got) != 0 {
		t.Errorf("got peaks %+v of no fires", got)
	}
}

func TestNowIsDrawnOnlyWithinThePicture(t *testing.T) {
	t.Parallel()
	axis := Span{timeAt(t, "2026-05-01T00:00:00Z"), timeAt(t, "2026-05-01T10:00:00Z")}
	for now, want := range map[string]float64{
		"2026-05-01T05:00:00Z": 480, "2026-05-01T00:00:00Z": 0, "2026-04-30T23:59:59Z": -1, "2026-05-01T10:00:01Z": -1,
	} {
		if got := NewRows(axis, time.UTC, timeAt(t, now)).Now; got != want {
			t.Errorf("now %s is drawn at %v, want %v", now, got, want)
		}
	}
}

func TestMarksOfRowsStayInThePicture(t *testing.T) {
	t.Parallel()
	axis := Span{timeAt(t, "2026-05-01T00:00:00Z"), timeAt(t, "2026-05-01T10:00:00Z")}
	c := NewRows(axis, time.UTC, axis.To.Add(time.Hour))
	c.Add(axis, "billing/invoices", "job", []RowEvent{
		{From: axis.From.Add(time.Hour), To: axis.From.Add(2 * time.Hour), Shape: "ok"},
		{From: axis.From.Add(time.Hour), To: axis.From.Add(time.Hour + time.Second), Shape: "failed"},
		{From: axis.To, Shape: "planned"},
	}, true)
	c.Add(axis, "billing/late", "job", nil, false)
	want := []rowMark{{X: 84, From: 96, Width: 96, Shape: "ok"}, {X: 84, From: 96, Shape: "failed"}, {X: 936, From: 960, Shape: "planned"}}
	if !slices.Equal(c.Rows[0].Marks, want) || !c.Rows[0].More {
		t.Errorf("got %+v, want marks %+v and more", c.Rows[0], want)
	}
	if c.Height != 56 || c.Rows[1].Y != 28 {
		t.Errorf("got height %d and second row at %v, want 56 and 28", c.Height, c.Rows[1].Y)
	}
}

func TestStagesOfRuns(t *testing.T) {
	t.Parallel()
	start := timeAt(t, "2026-05-01T00:00:00Z")
	at := func(seconds int) *time.Time { at := start.Add(time.Duration(seconds) * time.Second); return &at }
	attempt := func(n, from, to int, state run.State) run.Attempt {
		return run.Attempt{Attempt: n, StartedAt: *at(from), EndedAt: *at(to), State: state}
	}
	for name, tt := range map[string]struct {
		run  run.Run
		want []string
	}{
		"one attempt": {
			run.Run{State: run.Succeeded, Attempt: 1, ClaimedAt: at(1), StartedAt: at(2), EndedAt: at(5),
				Attempts: []run.Attempt{attempt(1, 2, 5, run.Succeeded)}},
			[]string{"claim 1s", "start 1s", "attempt 1 3s succeeded"},
		},
		"claimed before it was due": {
			run.Run{State: run.Succeeded, Attempt: 1, ClaimedAt: at(-1), StartedAt: at(0), EndedAt: at(1),
				Attempts: []run.Attempt{attempt(1, 0, 1, run.Succeeded)}},
			[]string{"attempt 1 1s succeeded"},
		},
		"claimed before it was due, and begun late": {
			run.Run{State: run.Succeeded, Attempt: 1, ClaimedAt: at(-1), StartedAt: at(2), EndedAt: at(3),
				Attempts: []run.Attempt{attempt(1, 2, 3, run.Succeeded)}},
			[]string{"start 2s", "attempt 1 1s succeeded"},
		},
		"a broadcast": {
			run.Run{State: run.Succeeded, Attempt: 1, ClaimedAt: at(-1), StartedAt: at(1), EndedAt: at(3), Shards: &run.ShardCounts{Total: 2}},
			[]string{"start 1s", "shards 2s succeeded"},
		},
		"a broadcast under way": {
			run.Run{State: run.WaitingShards, Attempt: 1, ClaimedAt: at(1), StartedAt: at(2), Shards: &run.ShardCounts{Total: 2}},
			[]string{"claim 1s", "start 1s", "shards 58s waiting_shards open"},
		},
		"two attempts": {
			run.Run{State: run.Failed, Attempt: 2, ClaimedAt: at(20), StartedAt: at(21), EndedAt: at(22),
				Attempts: []run.Attempt{attempt(1, 2, 5, run.TimedOut), attempt(2, 21, 22, run.Failed)}},
			[]string{"first 2s", "attempt 1 3s timed_out", "retry 15s", "start 1s", "attempt 2 1s failed"},
		},
		"waits for its next attempt": {
			run.Run{State: run.Retrying, Attempt: 1, ClaimedAt: at(1), StartedAt: at(2), NextAttemptAt: at(90),
				Attempts: []run.Attempt{attempt(1, 2, 5, run.Failed)}},
			[]string{"claim 1s", "start 1s", "attempt 1 3s failed", "retry 1m25s open"},
		},
		"waits for a host": {
			run.Run{State: run.Retrying, Attempt: 1, StartedAt: at(2), WaitsFor: "billing.example",
				Attempts: []run.Attempt{attempt(1, 2, 5, run.Failed)}},
			[]string{"first 2s", "attempt 1 3s failed", "circuit_open 55s open"},
		},
		"waits for a slot": {run.Run{State: run.Queued, SlotWait: &run.SlotWait{}}, []string{"slot 1m0s open"}},
		"waits for a rate": {run.Run{State: run.Retrying, NextAttemptAt: at(9), Waited: run.WaitHostRate}, []string{"host_rate 9s open"}},
		"waited for a slot": {
			run.Run{State: run.Succeeded, Attempt: 1, ClaimedAt: at(9), StartedAt: at(10), EndedAt: at(11), Waited: run.WaitSlot,
				Attempts: []run.Attempt{attempt(1, 10, 11, run.Succeeded)}},
			[]string{"slot 9s", "start 1s", "attempt 1 1s succeeded"},
		},
		"waited for its host, and was attempted again": {
			run.Run{State: run.Succeeded, Attempt: 2, ClaimedAt: at(20), StartedAt: at(21), EndedAt: at(22), Waited: run.WaitCircuit,
				Attempts: []run.Attempt{attempt(1, 9, 10, run.Failed), attempt(2, 21, 22, run.Succeeded)}},
			[]string{"circuit_open 9s", "attempt 1 1s failed", "retry 10s", "start 1s", "attempt 2 1s succeeded"},
		},
		"under way": {
			run.Run{State: run.Claimed, Attempt: 1, ClaimedAt: at(1), StartedAt: at(2)},
			[]string{"claim 1s", "start 1s", "attempt 1 58s claimed open"},
		},
		"its second attempt under way": {
			run.Run{State: run.Claimed, Attempt: 2, ClaimedAt: at(20), StartedAt: at(21),
				Attempts: []run.Attempt{attempt(1, 2, 5, run.Failed)}},
			[]string{"first 2s", "attempt 1 3s failed", "retry 15s", "start 1s", "attempt 2 39s claimed open"},
		},
		"waits for its callback": {
			run.Run{State: run.WaitingCallback, Attempt: 1, ClaimedAt: at(1), StartedAt: at(2)},
			[]string{"claim 1s", "start 1s", "callback 1 58s waiting_callback open"},
		},
		"claimed by a node that has not said more": {
			run.Run{State: run.Claimed, Attempt: 1, ClaimedAt: at(1)}, []string{"claimed 1m0s open"},
		},
		"queued":  {run.Run{State: run.Queued}, []string{"queue 1m0s open"}},
		"skipped": {run.Run{State: run.Skipped, EndedAt: at(0)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.run.ScheduledAt = start
			var got []string
			whole := 0.0
			for _, s := range Stages(tt.run, *at(60)) {
				text := s.What
				if s.Attempt > 0 {
					text += fmt.Sprint(" ", s.Attempt)
				}
				text += " " + s.Took().String()
				if s.Class != "wait" {
					text += " " + s.Class
				}
				if s.Open {
					text += " open"
				}
				got = append(got, text)
				if s.X < whole-0.5 || s.Width < leastStage {
					t.Errorf("stage %s is at %v, %v wide; want it after %v and at least %d wide", text, s.X, s.Width, whole, leastStage)
				}
				whole = s.X + s.Width
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got stages\n%q, want\n%q", got, tt.want)
			}
			if len(got) > 0 && (whole < stagesWidth-2 || whole > stagesWidth+2) && len(got) > 1 {
				t.Errorf("the stages are %v wide together, want %d", whole, stagesWidth)
			}
		})
	}
}

func TestMarksStayOnTheirSideOfThePresent(t *testing.T) {
	t.Parallel()
	axis := Span{timeAt(t, "2026-05-01T00:00:00Z"), timeAt(t, "2026-05-01T10:00:00Z")}
	now := axis.From.Add(5 * time.Hour) // at 480
	c := NewRows(axis, time.UTC, now)
	c.Add(axis, "billing/invoices", "job", []RowEvent{
		{From: axis.From, Shape: "ok"}, {From: now.Add(-time.Hour), Shape: "ok"}, {From: now, Shape: "failed"},
		{From: now.Add(time.Second), Shape: "planned"}, {From: now.Add(time.Hour), Shape: "planned"},
	}, false)
	var got []float64
	for _, mark := range c.Rows[0].Marks {
		got = append(got, mark.X)
	}
	if want := []float64{0, 372, 456, 480, 564}; !slices.Equal(got, want) {
		t.Errorf("got marks from %v, want %v", got, want)
	}
}
