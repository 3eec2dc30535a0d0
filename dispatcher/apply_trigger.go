package dispatcher

import (
	"cmp"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// resolve writes out what was recognised or left out, as parsed has it, so that the stored definition is complete.
func (t *Trigger) resolve(parsed *schedule.Schedule) {
	t.Schedule.Resolve(parsed)
	t.MisfirePolicy = cmp.Or(t.MisfirePolicy, FireOnce)
	t.CatchUpWindow = cmp.Or(t.CatchUpWindow, MaxCatchUpWindow)
}

// triggerChange is the change of a job, trigger by trigger.
type triggerChange struct {
	dropping
	old   *Job // nil: it is new
	job   Job  // as it will be
	prior Prior
}

// apply returns the trigger of that name as it is to be stored, and what is decided about fires that were pending.
func (c *triggerChange) apply(name string) (Trigger, []Misfire, error) {
	t := c.job.Triggers[name]
	t.Paused, t.Error, t.PrevFireTime, t.NextFireTime, t.DueAt, t.Fired, t.CountedFrom = false, "", nil, nil, nil, 0, nil
	t.State, t.AnchorAt, t.Pause = TriggerWaiting, c.now, Pause{}
	s, err := t.Parse(c.job.Identity(name), t.AnchorAt, c.calendars)
	if err != nil {
		return t, nil, err
	}
	t.resolve(s)
	if before, known := c.old.trigger(name); known {
		t.Paused, t.Pause, t.PrevFireTime = before.Paused, before.Pause, before.PrevFireTime
		return c.replace(name, before, t)
	}
	if fired := c.prior.Fired[name]; fired.After(c.now) {
		t.PrevFireTime = &fired
	}
	if !c.job.Enabled || !t.Enabled {
		return t, nil, nil
	}
	return t, nil, c.schedule(&t, s, true)
}

// replace is apply for a trigger that replaces before.
func (c *triggerChange) replace(name string, before, t Trigger) (Trigger, []Misfire, error) {
	identity := c.job.Identity(name)
	s, err := t.Parse(identity, t.AnchorAt, c.calendars)
	if err != nil {
		return t, nil, err
	}
	was, err := before.Parse(identity, before.AnchorAt, c.calendars)
	if err != nil {
		was = nil
	}
	grid := was != nil && was.SameGrid(s)
	same := grid && before.Calendar == t.Calendar && was.SameFires(s)
	wasOn, isOn := c.old.Enabled && before.Enabled, c.job.Enabled && t.Enabled
	if grid {
		t = t.Continuing(before, was, s, c.now)
		if _, delayed := s.FixedDelay(); delayed && c.startsAgain(t, before, wasOn) {
			t.AnchorAt = c.now
		}
		if s, err = t.Parse(identity, t.AnchorAt, c.calendars); err != nil {
			return t, nil, err
		}
	}
	switch {
	case wasOn && !isOn:
		reason := "the trigger was disabled"
		if !c.job.Enabled {
			reason = "the job was disabled"
		}
		return t, c.due(*c.old, name, reason), nil
	case !isOn:
		return t, nil, nil
	case wasOn && same && before.State != TriggerError:
		t.State, t.NextFireTime, t.DueAt = before.State.Stored(), before.NextFireTime, before.DueAt
		return t, nil, nil
	}
	refuse := !grid || !input.SameInstant(before.EndAt, t.EndAt)
	if !wasOn {
		return t, nil, c.schedule(&t, s, refuse)
	}
	return c.reschedule(name, before, t, was, s)
}

// reschedule is replace for a trigger that is on, before and after.
func (c *triggerChange) reschedule(name string, before, t Trigger, was, s *schedule.Schedule) (Trigger, []Misfire, error) {
	grid := was != nil && was.SameGrid(s)
	if _, delayed := s.FixedDelay(); delayed && grid && before.State.Stored() == TriggerWaiting && before.NextFireTime == nil {
		return t, nil, nil // the end of its run decides
	}
	pending := pendingChange{
		job: c.job, name: name, before: before, was: was, after: t, is: s, left: -1, now: c.now, budget: c.budget,
		reason: "the trigger was changed",
	}
	if grid && t.RepeatCount > 0 && before.NextFireTime != nil {
		pending.left = t.RepeatCount - before.used(was, before.NextFireTime.Add(-time.Millisecond), t.RepeatCount)
	}
	next, due, decided := pending.settle()
	if next != nil {
		t.State, t.NextFireTime, t.DueAt = TriggerWaiting, next, due
		return t, decided, nil
	}
	return t, decided, c.schedule(&t, s, !grid || !input.SameInstant(before.EndAt, t.EndAt))
}

// schedule gives t its next fire from now on. A schedule that ended while its job was disabled, or with a fire that was claimed
// a moment ago, is complete. With refuse, one that is over is an error: only a new one is a mistake.
func (c *triggerChange) schedule(t *Trigger, s *schedule.Schedule, refuse bool) error {
	if t.usedUp(s) {
		t.State = TriggerComplete
		return nil
	}
	after := t.afterLast(c.now)
	if err := t.scheduleNext(s, after); err != nil {
		return err
	}
	if t.State == TriggerComplete && refuse && !after.After(c.now) {
		return t.over(s, c.calendars, c.now)
	}
	return nil
}

// Continuing returns t with the anchor and the count that it has if it replaces before at now; was and is are their schedules. A
// schedule with the same instants keeps both: the repeats that before has used up are used up.
func (t Trigger) Continuing(before Trigger, was, is *schedule.Schedule, now time.Time) Trigger {
	if !was.SameGrid(is) {
		return t
	}
	t.AnchorAt, t.Fired, t.CountedFrom = before.AnchorAt, before.Fired, before.CountedFrom
	_, delayed := was.FixedDelay()
	if delayed || t.RepeatCount == 0 || before.Calendar == t.Calendar && was.SameFires(is) {
		return t
	}
	until := before.afterLast(now)
	t.Fired, t.CountedFrom = before.used(was, until, t.RepeatCount), &until
	return t
}

// used returns how many repeats of t, whose schedule is s, are used up by a time, most at most.
func (t Trigger) used(s *schedule.Schedule, until time.Time, most int) int {
	if _, delayed := s.FixedDelay(); delayed {
		return min(t.Fired, most)
	}
	from, used := t.AnchorAt, 0
	switch {
	case t.CountedFrom != nil && !t.CountedFrom.After(until):
		from, used = *t.CountedFrom, t.Fired
	case t.CountedFrom != nil: // it was pending already at the change before
		return 0
	case t.StartAt != nil:
		from = t.StartAt.Add(-time.Millisecond)
	}
	// Fires that cannot be counted within bounds are not used up.
	n, _ := s.CountWithin(newMissedBudget(), from, until, max(most-used, 0))
	return min(used+n, most)
}

// startsAgain reports whether a fixed delay that replaces before counts from now, because it waits for the end of no run.
func (c *triggerChange) startsAgain(t, before Trigger, wasOn bool) bool {
	switch {
	case !wasOn:
		return true
	case before.NextFireTime != nil:
		return false
	}
	return before.State == TriggerError || before.State == TriggerComplete && (t.RepeatCount == 0 || t.Fired < t.RepeatCount)
}

// usedUp reports whether a fixed delay has no repeats left. The schedule of another trigger knows that itself.
func (t Trigger) usedUp(s *schedule.Schedule) bool {
	_, delayed := s.FixedDelay()
	return delayed && t.RepeatCount > 0 && t.Fired >= t.RepeatCount
}

// afterLast is now, or the last fire if a node claimed it ahead of time.
func (t Trigger) afterLast(now time.Time) time.Time {
	if t.PrevFireTime != nil && t.PrevFireTime.After(now) {
		return *t.PrevFireTime
	}
	return now
}

// over explains why t, whose schedule is s, has no fire left, if a time in its definition shows it.
func (t Trigger) over(s *schedule.Schedule, calendars Calendars, now time.Time) error {
	var problems input.Problems
	if t.EndAt != nil && !t.EndAt.After(now) {
		problems.Add("/end_at", input.CodeAtPast, "end_at %s is in the past (it is %s), so the trigger would never fire; "+
			"give a later one, or remove the trigger",
			input.FormatInstant(*t.EndAt), now.Format(time.RFC3339))
	}
	if t.Dialect != schedule.DialectAt {
		return problems.Err()
	}
	spec := s.Spec()
	spec.StartAt, spec.EndAt, spec.Calendar = time.Time{}, time.Time{}, nil
	unbounded, err := schedule.Parse(spec)
	if err != nil {
		return err
	}
	switch at, ok := unbounded.Next(now); {
	case !ok:
		problems.Add("/expression", input.CodeAtPast, "time %s is in the past (it is %s); give a later one, or remove the trigger",
			input.Echo(t.Expression), now.Format(time.RFC3339))
	case len(problems) > 0:
	case t.Calendar != "" && !s.Spec().Calendar.Includes(at):
		problems.Add("/calendar", input.CodeCronNever, "calendar %s excludes time %s, so the trigger would never fire",
			input.Echo(t.Calendar), input.Echo(t.Expression))
	default:
		problems.Add("/expression", input.CodeCronNever, "time %s is not between start_at and end_at, so the trigger would never fire",
			input.Echo(t.Expression))
	}
	return problems.Err()
}
