package dispatcher

import "time"

// AlertTrack is the state of one condition of an alert for one job, as a store keeps it. Its methods are pure: they return the
// track that follows, and what happened.
type AlertTrack struct {
	AlertID   int64          `json:"-"`
	JobID     int64          `json:"-"`
	Condition AlertCondition `json:"-"`
	Firing    bool           `json:"-"`
	Since     time.Time      `json:"since,omitzero"`     // when Firing became what it is
	Count     int            `json:"count,omitempty"`    // how often the condition was met in a row
	Repeated  int            `json:"repeated,omitempty"` // Count at the latest firing or still_firing
	Run       string         `json:"run,omitempty"`      // the latest that met the condition, as Class and Error; or Error says why it is met
	Class     Class          `json:"class,omitempty"`
	Error     string         `json:"error,omitempty"`
	MetAt     time.Time      `json:"met_at,omitzero"`     // when the condition was met last
	Sequence  int64          `json:"sequence,omitempty"`  // of the latest transition
	ChangedAt time.Time      `json:"changed_at,omitzero"` // when it was; later each time
	// Told is the transition of the latest notification, empty: none, and ToldAt its time.
	Told   AlertTransition `json:"told,omitempty"`
	ToldAt time.Time       `json:"told_at,omitzero"`
	// Open tells that people were told that the condition holds, and were not told yet that it holds no longer.
	Open         bool               `json:"open,omitempty"`
	Acknowledged *AcknowledgedAlert `json:"acknowledged,omitempty"`
	// MeasuredFrom is since when the time is measured that the condition bounds; zero: it is none of time.
	MeasuredFrom time.Time `json:"measured_from,omitzero"`
	// LookAt is when the condition itself is to be looked at, apart from mutes and acknowledgements; zero: never.
	LookAt time.Time `json:"look_at,omitzero"`
}

// AlertRule is what of an alert decides about a condition.
type AlertRule struct {
	After, RepeatEvery int // as in AlertFailures
	Recovery           bool
	// Muted tells that the alert is muted until MutedUntil.
	Muted      bool
	MutedUntil time.Time
}

// RuleOf returns the rule of a condition, and whether the alert has the condition.
func (a Alert) RuleOf(condition AlertCondition, now time.Time) (rule AlertRule, has bool) {
	rule = AlertRule{After: 1, Recovery: a.Recovery}
	rule.MutedUntil, rule.Muted = a.MutedUntil(now)
	switch condition {
	case AlertFailure:
		if has = a.Failure != nil; has {
			rule.After, rule.RepeatEvery = max(a.Failure.After, 1), a.Failure.RepeatEvery
		}
	case AlertMissed:
		has = a.Missed
	case AlertLate:
		has = a.LateAfter > 0
	case AlertOverrun:
		has = a.OverrunAfter > 0
	case AlertNoSuccess:
		has = a.NoSuccessFor > 0
	case AlertObjective:
		has = a.Objective
	}
	return rule, has
}

// AlertObservation is something that meets a condition, or ends it.
type AlertObservation struct {
	// Met is how often the condition is met; 0: the observation ends it.
	Met int
	// At is when that happened.
	At time.Time
	// What follows describes the run or the missed fires of it. LateBy is as in AlertNotification.
	Trigger, Run string
	Class        Class
	Error        string
	ScheduledAt  time.Time
	LateBy       time.Duration
	// Reason is why the condition ends without the job having done anything, such as that the job was deleted.
	Reason string
}

// AlertMade is a transition that was made.
type AlertMade struct {
	Transition AlertTransition
	At, Since  time.Time
	Sequence   int64
	Count      int
	// After is when the transition was that was notified before; zero: none was.
	After time.Time
	// Kept is why it is not notified; empty: it is.
	Kept AlertKept
	// Observation is what caused it; zero: time did.
	Observation AlertObservation
	// By and Reason are as in AlertNotification.
	By, Reason string
}

// Observe applies an observation. now is when it is judged: transitions are of then, each later than the one before.
func (t AlertTrack) Observe(rule AlertRule, seen AlertObservation, now time.Time) (AlertTrack, []AlertMade) {
	expired := t.acknowledgementEnded(now)
	if expired {
		t.Acknowledged = nil
	}
	var made []AlertMade
	if seen.Met > 0 {
		t, made = t.meet(rule, seen, now)
	} else {
		t, made = t.end(rule, seen, now)
	}
	if len(made) == 0 && expired && t.Firing {
		return t.made(rule, AlertMade{Transition: AlertStillFiring, Reason: acknowledgementEnded}, now)
	}
	return t, made
}

func (t AlertTrack) meet(rule AlertRule, seen AlertObservation, now time.Time) (AlertTrack, []AlertMade) {
	t.Count, t.MetAt = t.Count+seen.Met, seen.At
	t.Run, t.Class, t.Error = seen.Run, seen.Class, seen.Error
	switch {
	case !t.Firing && t.Count >= rule.After:
		t.Firing, t.Since, t.Repeated = true, seen.At, t.Count
		return t.made(rule, AlertMade{Transition: AlertFiring, Observation: seen}, now)
	case t.Firing && rule.RepeatEvery > 0 && t.Count-t.Repeated >= rule.RepeatEvery:
		t.Repeated = t.Count
		return t.made(rule, AlertMade{Transition: AlertStillFiring, Observation: seen}, now)
	}
	return t, nil
}

func (t AlertTrack) end(rule AlertRule, seen AlertObservation, now time.Time) (AlertTrack, []AlertMade) {
	count := t.Count
	t.Count, t.Repeated = 0, 0
	if !t.Firing {
		return t, nil
	}
	t.Firing, t.Acknowledged, t.Since = false, nil, seen.At
	return t.made(rule, AlertMade{Transition: AlertResolved, Count: count, Observation: seen, Reason: seen.Reason}, now)
}

// Check applies the passing of time: the end of a mute or of an acknowledgement.
func (t AlertTrack) Check(rule AlertRule, now time.Time) (AlertTrack, []AlertMade) {
	if t.acknowledgementEnded(now) {
		t.Acknowledged = nil
		return t.made(rule, AlertMade{Transition: AlertStillFiring, Reason: acknowledgementEnded}, now)
	}
	switch {
	case rule.Muted:
	case t.Firing && !t.Open:
		return t.made(rule, AlertMade{Transition: AlertFiring, Reason: muteEnded}, now)
	case !t.Firing && t.Open:
		return t.made(rule, AlertMade{Transition: AlertResolved, Reason: muteEnded}, now)
	}
	return t, nil
}

// Why a transition is made that no run caused.
const (
	muteEnded            = "the mute of the alert ended"
	acknowledgementEnded = "its acknowledgement ended"
)

// acknowledgementEnded tells whether the time of an acknowledgement has passed. People are told then that the condition
// still holds.
func (t AlertTrack) acknowledgementEnded(now time.Time) bool {
	return t.Acknowledged != nil && t.Acknowledged.Until != nil && !t.Acknowledged.Until.After(now)
}

// Acknowledge makes a note of who knows that the condition holds; it must hold.
func (t AlertTrack) Acknowledge(rule AlertRule, ack AcknowledgedAlert, now time.Time) (AlertTrack, []AlertMade) {
	t.Acknowledged = &ack
	return t.made(rule, AlertMade{Transition: AlertAcknowledged, By: ack.By, Reason: ack.Reason}, now)
}

// made completes a transition, and decides whether it is notified.
func (t AlertTrack) made(rule AlertRule, m AlertMade, now time.Time) (AlertTrack, []AlertMade) {
	now = now.UTC().Truncate(time.Millisecond)
	if !now.After(t.ChangedAt) {
		now = t.ChangedAt.Add(time.Millisecond)
	}
	t.Sequence++
	t.ChangedAt = now
	m.At, m.Since, m.Sequence, m.After = now, t.Since, t.Sequence, t.ToldAt
	if m.Transition != AlertResolved {
		m.Count = t.Count
	}
	m.Kept = t.keeps(rule, m.Transition)
	switch {
	case m.Kept == AlertKeptRecovery:
		t.Open = false // nobody waits to be told
	case m.Kept == "":
		t.Told, t.ToldAt = m.Transition, now
		t.Open = t.Firing
	}
	return t, []AlertMade{m}
}

// keeps says why a transition that t has just made is not notified; empty: it is.
func (t AlertTrack) keeps(rule AlertRule, transition AlertTransition) AlertKept {
	switch {
	case transition == AlertResolved && !t.Open:
		return AlertKeptUntold
	case transition == AlertResolved && !rule.Recovery:
		return AlertKeptRecovery
	case rule.Muted:
		return AlertKeptMuted
	case transition == AlertStillFiring && t.Acknowledged != nil:
		return AlertKeptAcknowledged
	}
	return ""
}

// Overtakes tells whether people were told something later than n, so that n would tell them what holds no longer. Somebody who
// acknowledges a condition does not keep others from being told that it holds.
func (t AlertTrack) Overtakes(n AlertNotification) bool {
	if t.Told == AlertAcknowledged && t.Since.Equal(n.Since) && n.Transition != AlertAcknowledged {
		return false
	}
	return t.ToldAt.After(n.At)
}

// Armed tells whether the end of any run of the job may change the track.
func (t AlertTrack) Armed() bool { return t.Firing || t.Count > 0 }

// KeptBack tells whether a mute keeps something from being notified.
func (t AlertTrack) KeptBack() bool { return t.Firing != t.Open }

// Idle tells whether there is nothing to be known of the condition.
func (t AlertTrack) Idle() bool {
	return !t.Firing && !t.Open && t.Count == 0 && t.MeasuredFrom.IsZero()
}

// CheckAt returns when time alone may change the track: a mute or an acknowledgement ends that keeps something back, or the
// condition is to be looked at; zero: never.
func (t AlertTrack) CheckAt(rule AlertRule) (at time.Time) {
	earliest := func(other time.Time) {
		if !other.IsZero() && (at.IsZero() || other.Before(at)) {
			at = other
		}
	}
	earliest(t.LookAt)
	if rule.Muted && t.KeptBack() {
		earliest(rule.MutedUntil)
	}
	if t.Acknowledged != nil && t.Acknowledged.Until != nil {
		earliest(*t.Acknowledged.Until)
	}
	return at
}

// State returns t as people see it, without what became of its notification.
func (t AlertTrack) State(alert Alert, job string, now time.Time) AlertState {
	state := AlertState{App: alert.App, Alert: alert.Name, Job: job, Condition: t.Condition, Firing: t.Firing, Since: t.Since, Count: t.Count,
		Run: t.Run, Class: t.Class, Error: t.Error, Sequence: t.Sequence, Acknowledged: t.Acknowledged}
	if state.Since.IsZero() {
		state.Since = t.MeasuredFrom
	}
	if rule, _ := alert.RuleOf(t.Condition, now); rule.Muted && t.KeptBack() {
		state.MutedUntil = &rule.MutedUntil
	}
	return state
}
