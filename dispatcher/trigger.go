package dispatcher

import (
	"maps"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// Trigger is one schedule of a job.
type Trigger struct {
	// Expression is the schedule in one of the dialects of package schedule.
	Expression string `json:"expression"`
	// Dialect says how to read Expression; empty recognises it, and the answer says as what.
	Dialect schedule.Dialect `json:"dialect"`
	// Timezone is an IANA name; empty means UTC.
	Timezone string `json:"timezone"`
	// StartAt and EndAt bound the fires, both inclusive; nil means unbounded.
	StartAt *time.Time `json:"start_at,omitempty"`
	EndAt   *time.Time `json:"end_at,omitempty"`
	// RepeatCount is the total number of fires; 0 means no limit.
	RepeatCount int `json:"repeat_count,omitempty"`
	// Gap and Overlap say what becomes of local times that daylight saving skips or repeats;
	// empty means skip and last.
	Gap     schedule.Gap     `json:"gap"`
	Overlap schedule.Overlap `json:"overlap"`
	// MisfireAfter is how late a fire may be before it counts as missed; 0 means 60s.
	MisfireAfter Duration `json:"misfire_after,omitempty"`
	// Enabled is whether the trigger fires; see Job.Enabled.
	Enabled bool `json:"enabled"`

	// Paused is an operator's pause of this trigger. Read-only, as all below.
	Paused bool `json:"paused"`
	// State is shown as paused while a pause of the trigger or its job stands.
	State TriggerState `json:"state"`
	// Error is the reason of state error.
	Error string `json:"error,omitempty"`
	// PrevFireTime and NextFireTime are nil where there is none.
	PrevFireTime *time.Time `json:"prev_fire_time,omitempty"`
	NextFireTime *time.Time `json:"next_fire_time,omitempty"`
	// AnchorAt is when the schedule was declared or last changed: intervals without a start
	// and repeat counts are counted from it.
	AnchorAt time.Time `json:"anchor_at"`
}

// DefaultMisfireAfter is how late a fire may be before it counts as missed.
const DefaultMisfireAfter = Duration(60 * time.Second)

// TriggerState is the state of a trigger.
type TriggerState string

// The states of a trigger. Paused is only shown, never stored: the pause has its own column.
const (
	TriggerWaiting  TriggerState = "waiting"
	TriggerComplete TriggerState = "complete"
	TriggerError    TriggerState = "error"
	TriggerPaused   TriggerState = "paused"
)

// SetDefaults gives a decoded trigger the values of fields that its JSON leaves out.
func (t *Trigger) SetDefaults() {
	t.Enabled = true
	t.MisfireAfter = DefaultMisfireAfter
}

// Spec returns the schedule of t as package schedule reads it.
func (t Trigger) Spec() schedule.Spec {
	spec := schedule.Spec{
		Expression: t.Expression, Dialect: t.Dialect, Timezone: t.Timezone,
		RepeatCount: t.RepeatCount, Gap: t.Gap, Overlap: t.Overlap, Anchor: t.AnchorAt,
	}
	if t.StartAt != nil {
		spec.StartAt = *t.StartAt
	}
	if t.EndAt != nil {
		spec.EndAt = *t.EndAt
	}
	return spec
}

// Validate returns everything wrong with t, as Faults with JSON pointers, or nil.
func (t Trigger) Validate() error {
	var faults Faults
	checkSchedule(&faults, t.Spec())
	t.MisfireAfter.check(&faults, "/misfire_after", time.Second, MaxDuration)
	return faults.Err()
}

// checkSchedule adds everything that keeps spec from being a trigger's schedule.
func checkSchedule(faults *Faults, spec schedule.Spec) {
	s, err := schedule.Parse(spec)
	if err != nil {
		faults.AddError("", err)
		return
	}
	if _, delayed := s.FixedDelay(); delayed {
		// It counts from the end of a run, which nothing moves the anchor to yet.
		faults.Add("/expression", CodeEnum, "expression %s is a fixed delay, which no node schedules yet; write rate(...)", Echo(spec.Expression))
	}
}

// warn returns what is allowed in the schedule but probably not meant, by the codes that
// package schedule warns with. Daylight saving is looked at for a year, from since on or
// from the last fire if that is later.
func (t Trigger) warn(since time.Time) Faults {
	s, err := schedule.Parse(t.Spec())
	if err != nil {
		return nil //nolint:nilerr // which is for Validate to report
	}
	if t.PrevFireTime != nil && t.PrevFireTime.After(since) {
		since = *t.PrevFireTime
	}
	var found Faults
	for _, w := range s.Warnings(since) {
		found = append(found, Fault{Path: "/expression", Code: w.Code, Message: w.Message})
	}
	told := slices.ContainsFunc(found, func(f Fault) bool { return f.Code == schedule.WarnNoFire })
	if _, fires := s.Next(since); !fires && !told && t.PrevFireTime == nil {
		found.Add("/expression", schedule.WarnNoFire, "nothing is left to fire by end_at and repeat_count, so the trigger never fires")
	}
	return found
}

// sameSchedule tells whether two definitions give the same instants, so that a change of
// anything else leaves the next fire time alone.
func (t Trigger) sameSchedule(other Trigger) bool {
	a, b := t.Spec(), other.Spec()
	a.Anchor, b.Anchor = time.Time{}, time.Time{}
	sameBounds := a.StartAt.Equal(b.StartAt) && a.EndAt.Equal(b.EndAt)
	a.StartAt, b.StartAt, a.EndAt, b.EndAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	return sameBounds && a == b
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
