package dispatcher

import "time"

// RescheduleForCalendar returns the enabled triggers of job whose calendar is among changed, by name,
// with new fire times at now. Fires that were due and that the changed calendar excludes come back as
// misfires, so that they are explained; fires that it still allows stay due.
func RescheduleForCalendar(job Job, changed map[string]bool, before, after Calendars, now time.Time) (map[string]Trigger, []Misfire) {
	triggers := map[string]Trigger{}
	var missed []Misfire
	for _, name := range sortedKeys(job.Triggers) {
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
		_, delayed := s.FixedDelay()
		switch due := t.NextFireTime != nil && !t.NextFireTime.After(now); {
		case due && s.Matches(*t.NextFireTime):
			t.fireAt(s, *t.NextFireTime)
			t.Error = ""
		case delayed && t.NextFireTime == nil: // its run decides, or it is complete
		default:
			missed = append(missed, dropDue(newMissedBudget(), job, name, before, now, "its calendar was changed")...)
			t.Error = ""
			_ = t.scheduleNext(s, t.afterLast(now)) // the trigger says what is wrong
		}
		triggers[name] = t
	}
	return triggers, missed
}

// RescheduleForZones returns a trigger of job that has a next fire, with the fire time that this
// program's time zone database gives it at now. A due fire stays due if it is still a scheduled time;
// otherwise it comes back as a misfire.
func RescheduleForZones(job Job, name string, calendars Calendars, now time.Time) (Trigger, []Misfire) {
	t := job.Triggers[name]
	t.State = t.State.Stored()
	s, err := t.Parse(job.Identity(name), t.AnchorAt, calendars)
	if err != nil {
		t.State, t.Error = TriggerError, err.Error()
		return t, nil
	}
	if !t.NextFireTime.After(now) && s.Matches(*t.NextFireTime) {
		return t, nil
	}
	return SkipDue(job, name, calendars, now, "the time zone database was changed")
}
