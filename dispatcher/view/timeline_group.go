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

// Planned is the time of which a page of a timeline shows planned fires.
type Planned struct {
	After, To time.Time // without After itself
	Step      time.Duration
	budget    *schedule.Budget
}

// NewPlanned returns a Planned with the budget of a page.
func NewPlanned(ctx context.Context, after, to time.Time, step time.Duration) Planned {
	return Planned{after, to, step, schedule.NewBudget(ctx, plannedSteps)}
}

// Marks returns the marks of the fires of a trigger's schedule. Of a dense schedule it returns one mark for each step that has
// fires, counted from After on. The error is Errors of package schedule, or that of the budget's context.
func (p Planned) Marks(s *schedule.Schedule, trigger string) ([]TimelineMark, error) {
	times, err := s.BetweenWithin(p.budget, p.After, p.To, MostTimelineMarks+1)
	if err != nil {
		return nil, err
	}
	var marks []TimelineMark
	if len(times) <= MostTimelineMarks {
		for _, at := range times {
			marks = append(marks, TimelineMark{What: MarkPlanned, ScheduledAt: at, Count: 1, Trigger: trigger})
		}
		return marks, nil
	}
	for begin := p.After; begin.Before(p.To); {
		at, ok, err := s.FindWithin(p.budget, begin)
		if err != nil || !ok || at.After(p.To) {
			return marks, err
		}
		marks = append(marks, TimelineMark{What: MarkPlanned, ScheduledAt: at, Count: 1, AtLeast: true, Trigger: trigger})
		begin = p.After.Add((at.Sub(p.After)/p.Step + 1) * p.Step).Add(-time.Millisecond)
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
