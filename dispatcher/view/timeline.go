package view

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// Timeline is a page of the jobs of an app, each with its past and planned fires between two times.
type Timeline struct {
	// From and To bound the scheduled times, both inclusive. Now is the time of the page by the database's clock.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Time of the page by the clock of the database.
	Now time.Time `json:"now"`
	// Step is the width of the stretches that marks of a crowded row are grouped into. They begin at Now, in both
	// directions, so past and planned marks are never in one group.
	Step input.Duration `json:"step"`
	// The jobs, by name.
	Items []TimelineRow `json:"items"`
	// Next is the cursor of the next page, empty for the last.
	Next string `json:"next,omitempty" schema:"Next"`
}

// TimelineRow is one job of a timeline.
type TimelineRow struct {
	Job string `json:"job"`
	// Marks are in the order of their times, at most MostTimelineMarks.
	Marks []TimelineMark `json:"marks" schema:"max=200"`
	// More is true if the row is not complete: of the past runs, it shows the latest, and those that failed.
	More bool `json:"more,omitempty"`
}

// TimelineMark is a run, a misfire or a planned fire; or several of the same kind and state in one stretch.
type TimelineMark struct {
	What TimelineKind `json:"what"`
	// ScheduledAt is the scheduled time, the first one of several; Last is the last of several, and Count is their
	// number. For a single one, Count is 1 and Last is nil. A misfire counts its missed fires.
	ScheduledAt time.Time `json:"scheduled_at"`
	// The last of several.
	Last *time.Time `json:"last,omitempty"`
	// How many runs or planned fires; for a misfire, how many were missed.
	Count int `json:"count"`
	// AtLeast is true if there are Count or more: dense planned fires are not counted one by one.
	AtLeast bool `json:"at_least,omitempty"`
	// Trigger is empty for several runs of different triggers, and for a run without a trigger.
	Trigger string `json:"trigger,omitempty"`
	// Run, Class and Error are set for a single run; StartedAt is the first start of several, EndedAt the last end.
	// They are nil until they happen.
	Run string `json:"run,omitempty" schema:"RunID"`
	// State of the run.
	State run.State `json:"state,omitempty"`
	// Only for a single run.
	Class run.Class `json:"class,omitempty"`
	// The first start of several.
	StartedAt *time.Time `json:"started_at,omitempty"`
	// The last end of several.
	EndedAt *time.Time `json:"ended_at,omitempty"`
	// Decision is the decision about a misfire.
	Decision dispatcher.Decision `json:"decision,omitempty" schema:"enum=fire_once|skip"`
}

// TimelineKind is the kind of a mark of a timeline.
type TimelineKind string

// The kinds of mark.
const (
	MarkRun     TimelineKind = "run"
	MarkMisfire TimelineKind = "misfire"
	MarkPlanned TimelineKind = "planned"
)

// TimelineKinds are all kinds of mark.
var TimelineKinds = []TimelineKind{MarkRun, MarkMisfire, MarkPlanned}

// TimelineQuery selects jobs of an app and a time.
type TimelineQuery struct {
	App string
	// Job selects one job; empty means all.
	Job      string
	From, To time.Time
	Page     input.Page // by name, at most MostTimelineRows
	Now      time.Time
}

// Timelines show past and planned fires of the jobs of an app.
type Timelines interface {
	// Timeline returns ErrNotFound if the app, or the job of the query, does not exist.
	Timeline(ctx context.Context, query TimelineQuery) (Timeline, error)
}

// Bounds of a timeline.
const (
	MostTimeline      = 48 * time.Hour
	MostTimelineRows  = 50
	MostTimelineMarks = 200
)

// plannedSteps bounds the cost of the planned fires of one page of a timeline.
const plannedSteps = 40 * schedule.StepsPerSearch

// Planned is the time for which a page of a timeline shows planned fires.
type Planned struct {
	After, To time.Time // without After itself
	Step      time.Duration
	budget    *schedule.Budget
}

// NewPlanned returns a Planned with the budget of a page.
func NewPlanned(ctx context.Context, after, to time.Time, step time.Duration) Planned {
	return Planned{after, to, step, schedule.NewBudget(ctx, plannedSteps)}
}

// Marks returns the marks of the fires of a trigger's schedule. For a dense schedule it returns one mark for each
// step that has fires, counted from After on. The error is input.Problems, or that of the budget's context.
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

// markGroup is the key of marks that are joined.
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
			key.step-- // a mark at now belongs to the past
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

// join makes m a mark that includes other, which is not earlier.
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

// TimelineStep returns the initial width of groups of marks of a crowded row.
func TimelineStep(from, to time.Time) time.Duration {
	return max(to.Sub(from)/MostTimelineMarks, time.Second).Truncate(time.Second)
}

// StripQuery names a trigger and the number of its scheduled times to return.
type StripQuery struct {
	App, Job, Trigger string
	Past, Next        int
	Now               time.Time
}

// Strip is a row of the latest and the next scheduled times of one trigger, each with its outcome.
type Strip struct {
	App     string `json:"app"`
	Job     string `json:"job"`
	Trigger string `json:"trigger"`
	// Now is the time of the strip by the database's clock. Cells after it are planned.
	Now time.Time `json:"now"`
	// Timezone is the time zone of the trigger's latest revision; empty if it has none, like a fixed delay.
	Timezone string `json:"timezone,omitempty"`
	// Cells are in the order of their scheduled times.
	Cells []StripCell `json:"cells" schema:"max=300"`
	// Incomplete is why there are fewer cells than requested, although the trigger may have more scheduled times;
	// empty if it has no more.
	Incomplete string `json:"incomplete,omitempty"`
}

// StripCell is one scheduled time of a trigger, or several in a row without a run for the same reason.
type StripCell struct {
	ScheduledAt time.Time `json:"scheduled_at"`
	// Until is the last of several times, for a cell in state excluded or none; nil if the cell is one time.
	Until *time.Time `json:"until,omitempty"`
	// What is its outcome, and Why explains it in the words of explain.
	What CellKind `json:"what"`
	// The reason, in the words of explain.
	Why string `json:"why"`
	// Run is the run of the fire; for a misfire, it is the catch-up run. State, Class, Late and Took belong to that
	// run: Late is how long after the time of the cell its first attempt began, and Took is how long the latest took. They
	// are left out until they are known.
	Run string `json:"run,omitempty" schema:"RunID"`
	// State of the run.
	State run.State `json:"state,omitempty"`
	// How its latest attempt failed.
	Class run.Class `json:"class,omitempty"`
	// How late its first attempt began after the time of the cell.
	Late input.Duration `json:"late,omitempty"`
	// How long its latest attempt took.
	Took input.Duration `json:"took,omitempty"`
	// Decision is the decision about a misfire.
	Decision dispatcher.Decision `json:"decision,omitempty" schema:"enum=fire_once|skip"`
	// Revision is the job's revision in force at the time, 0 if there was none.
	Revision int64 `json:"revision,omitempty"`
}

// CellKind is the outcome of a scheduled time.
type CellKind string

// The kinds of cell.
const (
	CellRun      CellKind = "run"      // it has a run, which may be under way
	CellSkipped  CellKind = "skipped"  // its run got no slot and was not attempted
	CellMisfire  CellKind = "misfire"  // a misfire decision covers it
	CellWaiting  CellKind = "waiting"  // it is due, and not yet claimed or settled
	CellPlanned  CellKind = "planned"  // it is in the future
	CellExcluded CellKind = "excluded" // the calendar of the trigger excludes it
	CellNone     CellKind = "none"     // no fire: the trigger was disabled, or daylight saving skips the time
	CellMissing  CellKind = "missing"  // it was scheduled, but is missing in the ledger
	CellUnknown  CellKind = "unknown"  // its schedule cannot be evaluated
)

// CellKinds are all kinds of cell.
var CellKinds = []CellKind{
	CellRun, CellSkipped, CellMisfire, CellWaiting, CellPlanned, CellExcluded, CellNone, CellMissing, CellUnknown,
}

// Bounds of a strip.
const (
	DefaultStripPast = 60
	MostStripPast    = 200
	DefaultStripNext = 20
	MostStripNext    = 100
)
