package dispatcher

import (
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

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
		if _, delayed := s.FixedDelay(); !delayed || t.NextFireTime != nil { // else its run decides, or it is complete
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

// mostZoneShift is the most by which a change of the rules of a zone moves a fire. All in force are of an hour or two.
const mostZoneShift = 3 * time.Hour

// movedLater returns the time that a due fire has by the new rules of its zone, if it is a later one that has passed, too. That fire
// is pending in its place: the job would run twice otherwise.
func movedLater(s *schedule.Schedule, due, now time.Time) (time.Time, bool) {
	if due.After(now) || s.Matches(due) {
		return time.Time{}, false
	}
	next, ok := s.Next(due)
	return next, ok && !next.After(now) && next.Sub(due) <= mostZoneShift
}

// moveTo gives t the fires of s, the schedule that it has since the rules of its calendar or zone were changed, and returns what
// is decided about pending fires that s does not have.
func (t *Trigger) moveTo(s *schedule.Schedule, change pendingChange) []Misfire {
	change.before, change.after, change.is = *t, *t, s
	change.otherTimes, change.left, change.budget = true, -1, newMissedBudget()
	next, due, decided := change.settle()
	if next != nil {
		t.State, t.NextFireTime, t.DueAt = TriggerWaiting, next, due
	} else {
		_ = t.scheduleNext(s, t.afterLast(change.now)) // the trigger says what is wrong
	}
	return decided
}
