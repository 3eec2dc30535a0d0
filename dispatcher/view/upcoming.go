package view

import (
	"context"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// UpcomingFires counts upcoming fires, by the steps of time in which they are due.
type UpcomingFires struct {
	// Step is the length of one step, and From is when the first begins.
	Step input.Duration `json:"step"`
	// When the first step begins.
	From time.Time `json:"from"`
	// Counts has one number for each step; empty while Computing without an earlier result.
	Counts []int64 `json:"counts" schema:"max=288"`
	// ComputedAt is when they were counted; nil if they never were.
	ComputedAt *time.Time `json:"computed_at,omitempty"`
	// Computing is true while they are being counted. Ask again in a few seconds.
	Computing bool `json:"computing,omitempty"`
	// Partial is true if triggers were left out, because there are too many or their schedules take too long.
	Partial bool `json:"partial,omitempty"`
}

// The steps of UpcomingFires.
const (
	UpcomingStep = 5 * time.Minute
	// UpcomingHours is how far it looks ahead by default, and MaxUpcomingHours is the maximum.
	UpcomingHours    = 24
	MaxUpcomingHours = 24
)

const (
	// upcomingSteps bounds the searches of one count, which takes some seconds of one processor at most.
	upcomingSteps = 4_000_000
	// eachStep is how many fires of a trigger are looked up in one step; further ones are estimated from their pace.
	eachStep = 5
	// sharedCounts is how many schedules are remembered, for other triggers with the same one.
	sharedCounts = 2_000
)

// UpcomingCounter counts upcoming fires.
type UpcomingCounter struct {
	from, to time.Time
	counts   []int64
	partial  bool
	budget   *schedule.Budget
	shared   map[sharedSchedule][]int64
}

// NewUpcomingCounter counts fires that are due from the step of now on.
func NewUpcomingCounter(now time.Time) *UpcomingCounter {
	steps := int(MaxUpcomingHours * time.Hour / UpcomingStep)
	from := now.UTC().Truncate(UpcomingStep)
	return &UpcomingCounter{
		from: from, to: from.Add(time.Duration(steps) * UpcomingStep), counts: make([]int64, steps),
		budget: schedule.NewSteps(upcomingSteps), shared: map[sharedSchedule][]int64{},
	}
}

// Until returns up to when fires are counted.
func (c *UpcomingCounter) Until() time.Time { return c.to }

// LeaveOut marks the count as partial.
func (c *UpcomingCounter) LeaveOut() { c.partial = true }

// Fires returns the counts.
func (c *UpcomingCounter) Fires(now time.Time) UpcomingFires {
	return UpcomingFires{Step: input.Duration(UpcomingStep), From: c.from, Counts: c.counts, ComputedAt: &now, Partial: c.partial}
}

// sharedSchedule determines the fires of a trigger, if they do not depend on its name or bounds.
type sharedSchedule struct {
	app, expression, timezone, calendar string
	dialect                             schedule.Dialect
	gap                                 schedule.Gap
	overlap                             schedule.Overlap
	excluded                            schedule.OnExcluded
	drift                               bool
	next                                int64
}

// sharedOf returns the key under which others share the fires of t; ok is false if they cannot, as with H.
func sharedOf(t UpcomingTrigger) (key sharedSchedule, ok bool) {
	s := t.Trigger.Schedule
	if s.Jitter > 0 || s.StartAt != nil || s.EndAt != nil || s.RepeatCount > 0 || strings.Contains(s.Expression, "H") ||
		t.Trigger.NextFireTime == nil || s.IsDelay() {
		return key, false
	}
	return sharedSchedule{
		app: t.App, expression: s.Expression, timezone: s.Timezone, calendar: s.Calendar, dialect: s.Dialect, gap: s.Gap,
		overlap: s.Overlap, excluded: s.OnExcluded, drift: s.DriftHour, next: t.Trigger.NextFireTime.UnixMilli(),
	}, true
}

// Add counts the fires of a trigger. For a fixed delay only the next is known.
func (c *UpcomingCounter) Add(t UpcomingTrigger, calendars dispatcher.Calendars) {
	if t.Trigger.NextFireTime == nil {
		return
	}
	key, may := sharedOf(t)
	counts, known := c.shared[key]
	if !may || !known {
		if c.budget.Left() <= 0 {
			c.partial = true
			return
		}
		counts = c.countOf(t, calendars)
		if may && len(c.shared) < sharedCounts {
			c.shared[key] = counts
		}
	}
	for i, n := range counts {
		c.counts[i] += n
	}
}

// countOf counts the fires of one trigger by its schedule.
func (c *UpcomingCounter) countOf(t UpcomingTrigger, calendars dispatcher.Calendars) []int64 {
	counts := make([]int64, len(c.counts))
	at := *t.Trigger.NextFireTime
	s, err := t.Trigger.Parse(t.Identity, t.Trigger.AnchorAt, calendars)
	if err != nil || t.Trigger.IsDelay() {
		c.partial = c.partial || err != nil
		counts[c.stepOf(at)]++
		return counts
	}
	for at.Before(c.to) {
		if at, err = c.countStep(counts, s, at); err != nil || at.IsZero() {
			c.partial = c.partial || err != nil
			break
		}
	}
	return counts
}

// countStep counts the fires of a step, from its first fire on, and returns the first fire after the step, or zero.
func (c *UpcomingCounter) countStep(counts []int64, s *schedule.Schedule, at time.Time) (next time.Time, err error) {
	first, step := at, c.stepOf(at)
	end := c.from.Add(time.Duration(step+1) * UpcomingStep)
	for n := 1; at.Before(end); n++ {
		counts[c.stepOf(at.Add(s.Delay(at)))]++
		if pace := at.Sub(first) / (eachStep - 1); n == eachStep && pace > 0 {
			counts[step] += int64((end.Sub(at) - 1) / pace)
			at = end.Add(-time.Millisecond)
		}
		var ok bool
		if at, ok, err = s.FindWithin(c.budget, at); err != nil || !ok {
			return time.Time{}, err
		}
	}
	return at, nil
}

// stepOf returns the step of an instant. Overdue fires belong to the first, and fires beyond the last to the last.
func (c *UpcomingCounter) stepOf(at time.Time) int {
	return min(max(0, int(at.Sub(c.from)/UpcomingStep)), len(c.counts)-1)
}

// PreviewRequest asks when a schedule would fire if it were declared at From.
type PreviewRequest struct {
	dispatcher.Schedule
	// App is the app of the calendar that the schedule names; needed only for that.
	App string `json:"app,omitempty" schema:"Name"`
	// Identity is the name that H and jitter hash: app/job/trigger, as for the trigger of that name.
	Identity string `json:"identity,omitempty"`
	// From is exclusive, like the instant of a declaration; nil means now.
	From *time.Time `json:"from,omitempty"`
	// Count is the number of requested fire times, 1 to MaxPreview; 0 means DefaultPreview.
	Count int `json:"count,omitempty" schema:"max=100,min=1"`
}

// Bounds of a preview.
const (
	DefaultPreview = 10
	MaxPreview     = 100
	// previewSteps bounds the cost of a preview to a few milliseconds. A hundred fires of an hourly schedule on leap
	// days only take half of it.
	previewSteps = 8 * schedule.StepsPerSearch
)

// SetDefaults gives a decoded request the values of fields that its JSON leaves out.
func (p *PreviewRequest) SetDefaults() { p.Count = DefaultPreview }

// Preview is the response to a PreviewRequest: the schedule with everything that was recognised or
// defaulted written out, and its fire times.
type Preview struct {
	dispatcher.Schedule
	From time.Time `json:"from"`
	// FireTimes are fewer than Count if the schedule ends.
	FireTimes []time.Time `json:"fire_times" schema:"Instant"`
	// DueTimes are when each of them runs; given only if jitter moves them.
	DueTimes []time.Time `json:"due_times,omitempty" schema:"Instant"`
}

// Validate returns everything wrong with p, as Problems with JSON pointers, or nil. Preview
// checks whether its calendar exists.
func (p PreviewRequest) Validate() error {
	var problems input.Problems
	p.Schedule.Check(&problems, p.Identity)
	switch {
	case p.App != "":
		input.CheckName(&problems, "/app", p.App)
	case p.Calendar != "":
		problems.Add("/app", input.CodeRequired, "app is missing; it says whose calendar %s is", input.Echo(p.Calendar))
	}
	if p.Jitter > 0 && p.Identity == "" {
		problems.Add("/identity", input.CodeRequired, "identity is missing; jitter hashes it: write app/job/trigger")
	}
	input.CheckText(&problems, "/identity", p.Identity)
	input.CheckRange(&problems, "/count", p.Count, 1, MaxPreview)
	return problems.Err()
}

// Preview returns the preview of a valid p; now is the default of From. The error is a *Problem,
// Problems, or the cause why ctx has ended.
func (p PreviewRequest) Preview(ctx context.Context, calendars dispatcher.Calendars, now time.Time) (Preview, error) {
	from := now.UTC().Truncate(time.Millisecond)
	if p.From != nil {
		from = *p.From
	}
	s, err := p.Parse(p.Identity, from, calendars)
	if err != nil {
		var problems input.Problems
		problems.AddError("", err)
		return Preview{}, problems
	}
	response := Preview{Schedule: p.Schedule, From: from, FireTimes: []time.Time{}}
	response.Resolve(s)
	found, err := s.BetweenWithin(schedule.NewBudget(ctx, previewSteps), from, dispatcher.EndOfTime, p.Count)
	if ctx.Err() != nil {
		return Preview{}, context.Cause(ctx)
	}
	if err != nil {
		var problems input.Problems
		problems.AddError("", err)
		return Preview{}, problems
	}
	response.FireTimes = append(response.FireTimes, found...)
	for _, at := range found {
		if p.Jitter > 0 {
			response.DueTimes = append(response.DueTimes, at.Add(s.Delay(at)))
		}
	}
	return response, nil
}
