package view

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// plannedSteps bounds what the planned fires of one page of a timeline cost.
const plannedSteps = 40 * schedule.StepsPerSearch

// NewPlannedBudget returns a budget for the planned fires of a page of a timeline.
func NewPlannedBudget(ctx context.Context) *schedule.Budget {
	return schedule.NewBudget(ctx, plannedSteps)
}

// PlannedMarks returns the marks of the fires of a trigger's schedule in (after, to]. Of a dense schedule it returns one mark for
// each step that has fires, counted from after on. The error is Errors of package schedule, or that of the budget's context.
func PlannedMarks(
	budget *schedule.Budget, s *schedule.Schedule, trigger string, after, to time.Time, step time.Duration,
) ([]TimelineMark, error) {
	times, err := s.BetweenWithin(budget, after, to, MostTimelineMarks+1)
	if err != nil {
		return nil, err
	}
	dense := len(times) > MostTimelineMarks
	var marks []TimelineMark
	if !dense {
		for _, at := range times {
			marks = append(marks, TimelineMark{What: MarkPlanned, ScheduledAt: at, Count: 1, Trigger: trigger})
		}
		return marks, nil
	}
	for begin := after; begin.Before(to); {
		at, ok, err := s.FindWithin(budget, begin)
		if err != nil || !ok || at.After(to) {
			return marks, err
		}
		marks = append(marks, TimelineMark{What: MarkPlanned, ScheduledAt: at, Count: 1, AtLeast: true, Trigger: trigger})
		begin = after.Add((at.Sub(after)/step + 1) * step).Add(-time.Millisecond)
	}
	return marks, nil
}

// Group puts the marks of a row in order, and joins those of one kind and state within a step if there are more than
// MostTimelineMarks, and then within twice the step, and so on. Steps begin at now, in both directions.
func (r *TimelineRow) Group(now time.Time, step time.Duration) {
	inOrder := func(a, b TimelineMark) int {
		return cmp.Or(a.ScheduledAt.Compare(b.ScheduledAt), cmp.Compare(a.What, b.What), cmp.Compare(a.State, b.State),
			cmp.Compare(a.Run, b.Run))
	}
	slices.SortFunc(r.Marks, inOrder)
	for marks := r.Marks; len(r.Marks) > MostTimelineMarks; step *= 2 {
		r.Marks = grouped(marks, now, step)
		slices.SortFunc(r.Marks, inOrder)
	}
}

// markGroup is what marks have in common that are joined.
type markGroup struct {
	what  TimelineKind
	state run.State
	step  int64
}

func grouped(marks []TimelineMark, now time.Time, step time.Duration) []TimelineMark {
	var all []TimelineMark
	at := map[markGroup]int{}
	for _, m := range marks {
		since := m.ScheduledAt.Sub(now)
		key := markGroup{m.What, m.State, int64(since / step)}
		if since <= 0 {
			key.step-- // what is at now belongs to what was before
		}
		i, known := at[key]
		if !known {
			at[key] = len(all)
			all = append(all, m)
			continue
		}
		all[i].join(m)
	}
	return all
}

// join makes m a mark of several, the other one too, which is not earlier.
func (m *TimelineMark) join(other TimelineMark) {
	last := other.ScheduledAt
	if other.Last != nil {
		last = *other.Last
	}
	if m.Last == nil || m.Last.Before(last) {
		m.Last = &last
	}
	m.Count += other.Count
	m.AtLeast = m.AtLeast || other.AtLeast
	m.Run, m.Class = "", ""
	if m.Trigger != other.Trigger {
		m.Trigger = ""
	}
	if m.Decision != other.Decision {
		m.Decision = ""
	}
	if m.StartedAt == nil || other.StartedAt != nil && other.StartedAt.Before(*m.StartedAt) {
		m.StartedAt = other.StartedAt
	}
	if m.EndedAt == nil || other.EndedAt != nil && other.EndedAt.After(*m.EndedAt) {
		m.EndedAt = other.EndedAt
	}
}

// TimelineStep is the width into which the marks of a crowded row are grouped at first.
func TimelineStep(from, to time.Time) time.Duration {
	return max(to.Sub(from)/MostTimelineMarks, time.Second).Truncate(time.Second)
}
