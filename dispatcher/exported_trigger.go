package dispatcher

import "time"

// ExportedTrigger is where a trigger stands.
type ExportedTrigger struct {
	Paused bool `json:"paused"`
	// Origin is as that of ExportedJob.
	Origin string `json:"origin,omitempty"`
	// PauseReason and PausedUntil are as those of ExportedJob.
	PauseReason string       `json:"pause_reason,omitempty"`
	PausedUntil *time.Time   `json:"paused_until,omitempty"`
	State       TriggerState `json:"state"`
	Error       string       `json:"error,omitempty"`
	// AnchorAt is when the schedule was declared or last changed.
	AnchorAt time.Time `json:"anchor_at"`
	// NextFireTime is the first scheduled time that is owed; it may have passed.
	PrevFireTime *time.Time `json:"prev_fire_time,omitempty"`
	NextFireTime *time.Time `json:"next_fire_time,omitempty"`
	// Fired counts the fires of a fixed delay, or those before CountedFrom.
	Fired       int        `json:"fired,omitempty"`
	CountedFrom *time.Time `json:"counted_from,omitempty"`
}

// Restore returns t where it stood. A scheduled time that is none here, because this version knows other rules of
// a time zone, gives way to the first one from then on.
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
		_ = t.scheduleNext(s, at.NextFireTime.Add(-time.Millisecond)) // the trigger says what is wrong
	}
	return t, nil
}
