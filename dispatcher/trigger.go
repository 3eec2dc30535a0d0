package dispatcher

import (
	"cmp"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// Trigger is one schedule of a job.
type Trigger struct {
	TriggerSpec
	TriggerStatus `body:"-"`
}

// TriggerSpec is the definition of a trigger, as people declare it.
type TriggerSpec struct {
	Schedule
	// MisfireAfter is how late a fire may be before it counts as missed; 0 means 60s.
	MisfireAfter input.Duration `json:"misfire_after,omitempty"`
	// MisfirePolicy decides about missed fires; empty means FireOnce.
	MisfirePolicy MisfirePolicy `json:"misfire_policy"`
	// CatchUpWindow is how old a missed fire may be and still be caught up, from MisfireAfter to
	// MaxCatchUpWindow; 0 means MaxCatchUpWindow. Older ones are skipped.
	CatchUpWindow input.Duration `json:"catch_up_window,omitempty"`
	// Enabled is whether the trigger fires; see Job.Enabled.
	Enabled bool `json:"enabled"`
}

// TriggerStatus is what Carillon itself knows about a trigger.
type TriggerStatus struct {
	// Paused is an operator's pause of this trigger.
	Paused bool `json:"paused"`
	// Pause says who paused it, when, and why.
	Pause
	// State is shown as paused during a pause of the trigger or its job.
	State TriggerState `json:"state"`
	// Error is the reason of state error.
	Error string `json:"error,omitempty"`
	// PrevFireTime and NextFireTime are nil if there is no such fire.
	PrevFireTime *time.Time `json:"prev_fire_time,omitempty"`
	NextFireTime *time.Time `json:"next_fire_time,omitempty"`
	// DueAt is when the next fire runs: NextFireTime plus its jitter.
	DueAt *time.Time `json:"due_at,omitempty"`
	// AnchorAt is when the times of the schedule were declared or last changed. Intervals without a start, and repeat
	// counts, start there. A fixed delay counts from the end of its latest run.
	AnchorAt time.Time `json:"anchor_at"`
	// CountedFrom is a time by which Fired of repeat_count were used up; later fires are counted from there. It is
	// the time of a change that kept AnchorAt; nil without such a change, and for a fixed delay.
	CountedFrom *time.Time `json:"counted_from,omitempty"`
	// Fired counts the fires of a fixed delay that have ended or were skipped, against repeat_count. For another schedule, see
	// CountedFrom.
	Fired int `json:"fired,omitempty"`
	// Origin is the first name of the trigger, as Job.Origin is for its job.
	Origin string `json:"origin,omitempty" schema:"Origin"`
}

// DefaultMisfireAfter is how late a fire may be before it counts as missed.
const DefaultMisfireAfter = input.Duration(60 * time.Second)

// TriggerState is the state of a trigger.
type TriggerState string

// The states of a trigger. Paused is only shown, never stored: pauses have their own column.
const (
	TriggerWaiting  TriggerState = "waiting"
	TriggerComplete TriggerState = "complete"
	TriggerError    TriggerState = "error"
	TriggerPaused   TriggerState = "paused"
)

// SetDefaults gives a decoded trigger the values of fields that its JSON leaves out.
func (t *TriggerSpec) SetDefaults() {
	t.Enabled = true
	t.MisfireAfter, t.MisfirePolicy, t.CatchUpWindow = DefaultMisfireAfter, FireOnce, MaxCatchUpWindow
}

// check adds everything wrong with t, which has that identity.
func (t TriggerSpec) check(problems *input.Problems, identity string) {
	t.Schedule.Check(problems, identity)
	t.MisfireAfter.CheckRange(problems, "/misfire_after", time.Second, input.MaxDuration)
	t.checkMisfires(problems)
}

// Parse is Schedule.Parse, with repeats that go on from CountedFrom.
func (t Trigger) Parse(identity string, anchor time.Time, calendars Calendars) (*schedule.Schedule, error) {
	return t.parse(t.Spec(identity, anchor), calendars)
}

// Spec is Schedule.Spec, with the remaining repeats.
func (t Trigger) Spec(identity string, anchor time.Time) schedule.Spec {
	spec := t.Schedule.Spec(identity, anchor)
	if t.CountedFrom != nil {
		spec.Used, spec.CountFrom = t.Fired, *t.CountedFrom
	}
	return spec
}

// scheduleNext sets the first fire after now; without one the trigger is complete. If it cannot be
// found within bounds, the trigger is in error, and the error is returned, too.
func (t *Trigger) scheduleNext(s *schedule.Schedule, now time.Time) error {
	t.State, t.NextFireTime, t.DueAt = TriggerComplete, nil, nil
	next, ok, err := s.Find(now)
	switch {
	case err != nil:
		t.State, t.Error = TriggerError, err.Error()
	case ok:
		t.fireAt(s, next)
	}
	return err
}

// fireAt sets the next fire.
func (t *Trigger) fireAt(s *schedule.Schedule, next time.Time) {
	due := next.Add(s.Delay(next))
	t.State, t.NextFireTime, t.DueAt = TriggerWaiting, &next, &due
}

// warn returns warnings about what is allowed in the schedule but probably a mistake, with the warning codes of
// package schedule. It looks at daylight saving for a year from since, or from the last fire if that is later.
func (t Trigger) warn(identity string, calendars Calendars, since time.Time) input.Problems {
	s, err := t.Parse(identity, t.AnchorAt, calendars)
	if err != nil {
		return nil //nolint:nilerr // Validate reports it
	}
	if t.PrevFireTime != nil && t.PrevFireTime.After(since) {
		since = *t.PrevFireTime
	}
	var found input.Problems
	for _, w := range s.Warnings(since) {
		found = append(found, input.Problem{Path: "/" + cmp.Or(w.Field, "expression"), Code: w.Code, Message: w.Message})
	}
	told := slices.ContainsFunc(found, func(f input.Problem) bool { return f.Code == input.WarnNoFire })
	budget := schedule.NewSteps(schedule.WarningSteps)
	if _, fires, err := s.FindWithin(budget, since); err == nil && !fires && !told && t.PrevFireTime == nil {
		found.Add("/expression", input.WarnNoFire, "end_at, repeat_count and calendar leave no fire, so the trigger never fires")
	}
	return found
}

// ExportedTrigger is the progress of a trigger.
type ExportedTrigger struct {
	Paused bool `json:"paused" schema:"required"`
	// Origin is as in ExportedJob.
	Origin string `json:"origin,omitempty" schema:"Origin"`
	// PauseReason and PausedUntil are as in ExportedJob.
	PauseReason string       `json:"pause_reason,omitempty" schema:"max=1024"`
	PausedUntil *time.Time   `json:"paused_until,omitempty"`
	State       TriggerState `json:"state" schema:"required"`
	Error       string       `json:"error,omitempty"`
	// AnchorAt is when the schedule was declared or last changed.
	AnchorAt time.Time `json:"anchor_at" schema:"required"`
	// NextFireTime is the first scheduled time that is not claimed yet; it may have passed.
	PrevFireTime *time.Time `json:"prev_fire_time,omitempty"`
	// The first scheduled time that is not claimed yet; it may have passed.
	NextFireTime *time.Time `json:"next_fire_time,omitempty"`
	// Fired counts the fires of a fixed delay, or the fires before CountedFrom.
	Fired int `json:"fired,omitempty" schema:"max=2147483647,min=0"`
	// When fired of repeat_count were used up; left out: fires are counted from anchor_at.
	CountedFrom *time.Time `json:"counted_from,omitempty"`
}

// Restore returns t with its exported progress. If its next fire time is not a scheduled time here, because this
// version has other time zone rules, the first one after it takes its place.
func (t Trigger) Restore(at ExportedTrigger, identity string, calendars Calendars) (Trigger, error) {
	t.Paused, t.Error, t.AnchorAt, t.Fired, t.CountedFrom = at.Paused, at.Error, at.AnchorAt.UTC(), at.Fired, at.CountedFrom
	t.PrevFireTime, t.NextFireTime, t.DueAt, t.State = at.PrevFireTime, nil, nil, at.State.Stored()
	s, err := t.Parse(identity, t.AnchorAt, calendars)
	if err != nil {
		return t, err
	}
	t.resolve(s)
	if _, delayed := s.FixedDelay(); delayed && at.NextFireTime != nil {
		t.fireAt(s, *at.NextFireTime)
	} else if at.NextFireTime != nil {
		_ = t.scheduleNext(s, at.NextFireTime.Add(-time.Millisecond)) // the error is kept in the trigger
	}
	return t, nil
}
