package view_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// A crowded row keeps every count, and no mark has both past and planned fires.
func TestCrowdedTimelineRowIsGroupedWithoutLoss(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	rapid.Check(t, func(r *rapid.T) {
		var row view.TimelineRow
		want := map[run.State]int{}
		for range rapid.IntRange(0, 1000).Draw(r, "marks") {
			at := now.Add(time.Duration(rapid.IntRange(-43_200, 43_200).Draw(r, "seconds")) * time.Second)
			m := view.TimelineMark{What: view.MarkPlanned, ScheduledAt: at, Count: 1}
			if !at.After(now) {
				m.What = view.MarkRun
				m.State = rapid.SampledFrom([]run.State{run.Succeeded, run.Failed, run.Lost}).Draw(r, "state")
			}
			want[m.State]++
			row.Marks = append(row.Marks, m)
		}
		row.Group(now, view.TimelineStep(now.Add(-12*time.Hour), now.Add(12*time.Hour)))
		if len(row.Marks) > view.MostTimelineMarks {
			r.Fatalf("%d marks are left", len(row.Marks))
		}
		got := map[run.State]int{}
		for i, m := range row.Marks {
			got[m.State] += m.Count
			last := m.ScheduledAt
			if m.Last != nil {
				last = *m.Last
			}
			if m.ScheduledAt.After(now) != last.After(now) || (m.What == view.MarkPlanned) != last.After(now) {
				r.Fatalf("mark %+v reaches over now", m)
			}
			if i > 0 && m.ScheduledAt.Before(row.Marks[i-1].ScheduledAt) {
				r.Fatalf("mark %+v is out of order", m)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			r.Fatalf("counts (-want +got):\n%s", diff)
		}
	})
}

func TestPlannedMarksOfSchedules(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 10, 0, 30, 0, time.UTC)
	to := now.Add(24 * time.Hour)
	for expression, want := range map[string]struct {
		marks   int
		atLeast bool
	}{
		"0 0 * * * ?": {24, false}, "* * * * * ?": {201, true}, "0 0 3 * * ?": {1, false}, "0 * 3 * * ?": {60, false},
		"* * 3 * * ?": {9, true}, // a dense hour
	} {
		s, err := schedule.Parse(schedule.Spec{Expression: expression})
		if err != nil {
			t.Fatal(err)
		}
		marks, err := view.NewPlanned(t.Context(), now, to, view.TimelineStep(now, to)).Marks(s, "t")
		if err != nil {
			t.Fatal(err)
		}
		if len(marks) != want.marks || len(marks) > 0 && marks[0].AtLeast != want.atLeast {
			t.Errorf("%s: got %d marks, the first %+v, want %d", expression, len(marks), marks[0], want.marks)
		}
	}
}
