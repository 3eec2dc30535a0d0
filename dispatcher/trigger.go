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

// Schedule says when a trigger fires, as users write it.
type Schedule struct {
	// Expression is the schedule in one of the dialects of package schedule.
	Expression string `json:"expression" schema:"required,max=256"`
	// Dialect is the dialect of Expression. If it is empty, Carillon recognises the dialect, and the response names it.
	Dialect schedule.Dialect `json:"dialect"`
	// Timezone is an IANA name; empty means UTC. An expression that follows the wall clock needs one.
	Timezone string `json:"timezone" schema:"Timezone"`
	// StartAt and EndAt bound the fires, both inclusive; nil means unbounded.
	StartAt *time.Time `json:"start_at,omitempty"`
	// The latest fire, inclusive.
	EndAt *time.Time `json:"end_at,omitempty"`
	// RepeatCount is the total number of fires; 0 means no limit.
	RepeatCount int `json:"repeat_count,omitempty" schema:"min=0"`
	// Gap and Overlap decide about local times that daylight saving skips or repeats; empty means skip and last.
	Gap     schedule.Gap     `json:"gap"`
	Overlap schedule.Overlap `json:"overlap"`
	// DriftHour lets a calendar_interval of days and longer keep the offset of its start
	// instead of the local hour.
	DriftHour bool `json:"drift_hour,omitempty"`
	// Calendar names a calendar of the app, with exclusions that apply; empty means none.
	Calendar string `json:"calendar,omitempty" schema:"Name"`
	// OnExcluded decides about fires that Calendar excludes; empty means skip.
	OnExcluded schedule.OnExcluded `json:"on_excluded,omitempty"`
	// Jitter spreads fires: each runs later than its scheduled time by up to Jitter, 0 to 24h.
	Jitter input.Duration `json:"jitter,omitempty"`
}

// Identity is the name of a trigger that H in its expression and its jitter hash.
func Identity(app, job, trigger string) string { return app + "/" + job + "/" + trigger }

// Parse returns the schedule of a trigger of that identity, anchored. With calendars nil,
// a calendar that s names excludes nothing. The error is an *input.Problem or input.Problems.
func (s Schedule) Parse(identity string, anchor time.Time, calendars Calendars) (*schedule.Schedule, error) {
	spec := s.Spec(identity, anchor)
	return s.parse(spec, calendars)
}

func (s Schedule) parse(spec schedule.Spec, calendars Calendars) (parsed *schedule.Schedule, err error) {
	if s.Calendar != "" {
		if spec.Calendar, err = calendars.Find(s.Calendar); err != nil {
			return nil, err
		}
	}
	return schedule.Parse(spec)
}

// Spec returns s as package schedule reads it, without its calendar.
func (s Schedule) Spec(identity string, anchor time.Time) schedule.Spec {
	spec := schedule.Spec{
		Expression: s.Expression, Dialect: s.Dialect, Timezone: s.Timezone, RepeatCount: s.RepeatCount,
		Gap: s.Gap, Overlap: s.Overlap, DriftHour: s.DriftHour, OnExcluded: s.OnExcluded,
		Jitter: s.Jitter.Std(), Identity: identity, Anchor: anchor,
	}
	if s.StartAt != nil {
		spec.StartAt = *s.StartAt
	}
	if s.EndAt != nil {
		spec.EndAt = *s.EndAt
	}
	return spec
}

// IsDelay reports whether a resolved s is a fixed delay: its next fire is unknown until its run has ended.
func (s Schedule) IsDelay() bool {
	if s.Dialect != schedule.DialectInterval { // others need not be parsed
		return false
	}
	parsed, err := s.Parse("", time.Time{}, nil)
	if err != nil {
		return false
	}
	_, delayed := parsed.FixedDelay()
	return delayed
}

// Check adds everything wrong with s; it does not look at the calendar's content.
func (s Schedule) Check(problems *input.Problems, identity string) {
	_, err := s.Parse(identity, time.Time{}, nil)
	problems.AddError("", err)
	switch {
	case s.Calendar != "":
		input.CheckName(problems, "/calendar", s.Calendar)
	case s.OnExcluded != "":
		problems.Add("/on_excluded", input.CodeRequired, "on_excluded %s needs a calendar, and none is named; name one in "+
			"calendar, or leave on_excluded out", input.Echo(string(s.OnExcluded)))
	}
}

// Resolve fills in what was recognised or defaulted, so that the stored definition is complete.
func (s *Schedule) Resolve(parsed *schedule.Schedule) {
	spec := parsed.Spec()
	s.Dialect, s.Timezone, s.Gap, s.Overlap = spec.Dialect, spec.Timezone, spec.Gap, spec.Overlap
}

// Same reports whether two schedules of one trigger have the same fires, however they are written.
func (s Schedule) Same(other Schedule) bool {
	if input.SameInstant(s.StartAt, other.StartAt) && input.SameInstant(s.EndAt, other.EndAt) {
		other.StartAt, other.EndAt = s.StartAt, s.EndAt
	}
	if s == other {
		return true
	}
	const identity = "a/b/c" // the same for both, so that its hashes are, too
	one, err := s.Parse(identity, time.Time{}, nil)
	if err != nil {
		return false
	}
	two, err := other.Parse(identity, time.Time{}, nil)
	return err == nil && s.Calendar == other.Calendar && one.SameFires(two)
}

// RescheduleForCalendar returns the enabled triggers of job whose calendar is among changed, by name,
// with new fire times at now. Fires that were due and that the changed calendar excludes are settled by the misfire
// policy; fires that it still allows stay due.
func RescheduleForCalendar(job Job, changed map[string]bool, before, after Calendars, now time.Time) (map[string]Trigger, []Misfire) {
	triggers := map[string]Trigger{}
	var missed []Misfire
	for _, name := range input.SortedKeys(job.Triggers) {
		t := job.Triggers[name]
		if !changed[t.Calendar] || !job.Enabled || !t.Enabled {
			continue
		}
		t.State = t.State.Stored()
		s, err := t.Parse(job.Identity(name), t.AnchorAt, after)
		if err != nil {
			t.State, t.Error = TriggerError, err.Error()
			triggers[name] = t
			continue
		}
		was, err := t.Parse(job.Identity(name), t.AnchorAt, before)
		if err != nil {
			was = nil
		}
		if _, delayed := s.FixedDelay(); !delayed || t.NextFireTime != nil { // else its run does, or it is over
			t.Error = ""
			decided := t.moveTo(s, pendingChange{job: job, name: name, was: was, now: now, reason: "its calendar was changed"})
			missed = append(missed, decided...)
		}
		triggers[name] = t
	}
	return triggers, missed
}

// RescheduleForZones returns a trigger of job that has a next fire, with the fire time that this
// program's time zone database gives it at now. A due fire stays due if it is still a scheduled time;
// otherwise the misfire policy settles it.
func RescheduleForZones(job Job, name string, calendars Calendars, now time.Time) (Trigger, []Misfire) {
	t := job.Triggers[name]
	t.State = t.State.Stored()
	s, err := t.Parse(job.Identity(name), t.AnchorAt, calendars)
	if err != nil {
		t.State, t.Error = TriggerError, err.Error()
		return t, nil
	}
	if moved, ok := movedLater(s, *t.NextFireTime, now); ok {
		skipped := Misfire{App: job.App, Job: job.Name, Trigger: name, JobID: job.Key(), TriggerID: job.TriggerKey(name),
			From: *t.NextFireTime, To: *t.NextFireTime, Count: 1, Decision: DecisionSkip, DecidedAt: now,
			Reason: "the time zone database was changed, and it moved to " + input.FormatInstant(moved)}
		t.fireAt(s, moved)
		return t, []Misfire{skipped}
	}
	return t, t.moveTo(s, pendingChange{job: job, name: name, was: s, now: now, reason: "the time zone database was changed"})
}

// mostZoneShift is the longest shift of a fire by a change of a zone's rules. Actual shifts are one or two hours.
const mostZoneShift = 3 * time.Hour

// movedLater returns the time of a due fire by the new rules of its zone, if that time is later and has also passed.
// The fire at that time is then pending in its place; otherwise the job would run twice.
func movedLater(s *schedule.Schedule, due, now time.Time) (time.Time, bool) {
	if due.After(now) || s.Matches(due) {
		return time.Time{}, false
	}
	next, ok := s.Next(due)
	return next, ok && !next.After(now) && next.Sub(due) <= mostZoneShift
}

// moveTo gives t the fires of s, its schedule after a change of the rules of its calendar or zone, and returns the
// decisions about pending fires that s does not have.
func (t *Trigger) moveTo(s *schedule.Schedule, change pendingChange) []Misfire {
	change.before, change.after, change.is = *t, *t, s
	change.otherTimes, change.left, change.budget = true, -1, newMissedBudget()
	next, due, decided := change.settle()
	if next != nil {
		t.State, t.NextFireTime, t.DueAt = TriggerWaiting, next, due
	} else {
		_ = t.scheduleNext(s, t.afterLast(change.now)) // the error is kept in the trigger
	}
	return decided
}
