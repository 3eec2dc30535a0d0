package alert

import (
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Track is the state of one condition of an alert for one job, as a store keeps it. Its methods are pure: they return
// the next track, and the transitions.
type Track struct {
	AlertID   int64                 `json:"-"`
	JobID     int64                 `json:"-"`
	Condition target.AlertCondition `json:"-"`
	Firing    bool                  `json:"-"`
	Since     time.Time             `json:"since,omitzero"`     // when Firing last changed
	Count     int                   `json:"count,omitempty"`    // how often the condition was met in a row
	Repeated  int                   `json:"repeated,omitempty"` // Count at the latest firing or still_firing
	Run       string                `json:"run,omitempty"`      // the latest that met the condition
	Class     run.Class             `json:"class,omitempty"`
	Error     string                `json:"error,omitempty"`
	MetAt     time.Time             `json:"met_at,omitzero"`     // when the condition was last met
	Sequence  int64                 `json:"sequence,omitempty"`  // of the latest transition
	ChangedAt time.Time             `json:"changed_at,omitzero"` // time of the latest transition; later each time
	// Told is the transition of the latest notification, empty if there was none, and ToldAt is its time.
	Told   target.AlertTransition `json:"told,omitempty"`
	ToldAt time.Time              `json:"told_at,omitzero"`
	// ToldIn is the run that delivers it together with notifications of other jobs; empty if it has a run of its own.
	ToldIn string `json:"told_in,omitempty"`
	// Open is true if the condition was notified and its end was not notified yet.
	Open         bool               `json:"open,omitempty"`
	Acknowledged *AcknowledgedAlert `json:"acknowledged,omitempty"`
	// MeasuredFrom is the start of the time that the condition bounds; zero if it does not depend on time.
	MeasuredFrom time.Time `json:"measured_from,omitzero"`
	// LookAt is when to check the condition itself, apart from mutes and acknowledgements; zero means never.
	LookAt time.Time `json:"look_at,omitzero"`
	// Waits is true while a late fire has not begun, or one that no node serves counts as missed; only for late and missed.
	Waits bool `json:"waits,omitempty"`
	// Kept is why the latest transition was not notified; empty if it was.
	Kept Kept `json:"kept,omitempty"`
}

// Rule has the values of an alert that decide about a condition.
type Rule struct {
	After, RepeatEvery int // as in Failures
	Recovery           bool
	// Muted is true if the alert is muted until MutedUntil.
	Muted      bool
	MutedUntil time.Time
	// Least is the least time from the notification of an end to that of a new beginning.
	Least time.Duration
	// Failing holds the beginning of late and no_success back: the alert has told that the job fails, which explains them.
	Failing bool
	// FailedTo is when the failure of the job ended that the alert knew last; zero if it fails, or none is known. A fire
	// that was late by then says nothing new.
	FailedTo time.Time
}

// leastTime keeps a condition of time that comes and goes from opening an incident each time. A failure and a missed fire
// are events of their own, and Failures.After bounds how often they are notified.
const leastTime = 5 * time.Minute

// RuleOf returns the rule of a condition, and whether the alert has the condition.
func (a Alert) RuleOf(condition target.AlertCondition, now time.Time) (rule Rule, has bool) {
	rule = Rule{After: 1, Recovery: a.Recovery}
	if condition != target.AlertFailure && condition != target.AlertMissed {
		rule.Least = leastTime
	}
	rule.MutedUntil, rule.Muted = a.MutedUntil(now)
	switch condition {
	case target.AlertFailure:
		if has = a.Failure != nil; has {
			rule.After, rule.RepeatEvery = max(a.Failure.After, 1), a.Failure.RepeatEvery
		}
	case target.AlertMissed:
		has = a.Missed
	case target.AlertLate:
		has = a.LateAfter > 0
	case target.AlertOverrun:
		has = a.OverrunAfter > 0
	case target.AlertNoSuccess:
		has = a.NoSuccessFor > 0
	case target.AlertObjective:
		has = a.Objective
	case target.AlertBlocked:
		has = a.Blocked
	}
	return rule, has
}

// Observation is an event that meets a condition, or ends it.
type Observation struct {
	// Met is how often the condition is met; 0 if the observation ends it.
	Met int
	// At is the time of the event.
	At time.Time
	// The other fields describe the run or the missed fires. LateBy is as in AlertNotification.
	Trigger, Run string
	Attempt      int // of a run that failed; 0 if no response belongs to the observation
	Class        run.Class
	Error        string
	ScheduledAt  time.Time
	LateBy       time.Duration
	// Reason is why the condition ends for another cause than a run, such as the deletion of the job.
	Reason string
}

// Made is a completed transition.
type Made struct {
	Transition target.AlertTransition
	At, Since  time.Time
	Sequence   int64
	Count      int
	// After is the time of the previously notified transition; zero if there was none.
	After time.Time
	// AfterIn is Track.ToldIn of that transition.
	AfterIn string
	// Kept is why it is not notified; empty if it is.
	Kept Kept
	// Observation is its cause; zero if it was caused by time.
	Observation Observation
	// By and Reason are as in AlertNotification.
	By, Reason string
}

// Observe applies an observation at now. Transitions get that time, each later than the one before.
func (t Track) Observe(rule Rule, seen Observation, now time.Time) (Track, []Made) {
	expired := t.acknowledgementEnded(now)
	if expired {
		t.Acknowledged = nil
	}
	var made []Made
	if seen.Met > 0 {
		t, made = t.meet(rule, seen, now)
	} else {
		t, made = t.end(rule, seen, now)
	}
	if len(made) == 0 && expired && t.Firing {
		return t.made(rule, Made{Transition: target.AlertStillFiring, Reason: acknowledgementEnded}, now)
	}
	return t, made
}

func (t Track) meet(rule Rule, seen Observation, now time.Time) (Track, []Made) {
	t.Count, t.MetAt = t.Count+seen.Met, seen.At
	t.Run, t.Class, t.Error = seen.Run, seen.Class, seen.Error
	switch {
	case !t.Firing && t.Count >= rule.After:
		t.Firing, t.Since, t.Repeated = true, seen.At, t.Count
		return t.made(rule, Made{Transition: target.AlertFiring, Observation: seen}, now)
	case t.Firing && rule.RepeatEvery > 0 && t.Count-t.Repeated >= rule.RepeatEvery:
		t.Repeated = t.Count
		return t.made(rule, Made{Transition: target.AlertStillFiring, Observation: seen}, now)
	}
	return t, nil
}

func (t Track) end(rule Rule, seen Observation, now time.Time) (Track, []Made) {
	count, began := t.Count, t.Since
	t.Count, t.Repeated = 0, 0
	if !t.Firing {
		return t, nil
	}
	t.Firing, t.Acknowledged, t.Since = false, nil, seen.At
	return t.made(rule, Made{Transition: target.AlertResolved, Since: began, Count: count, Observation: seen, Reason: seen.Reason}, now)
}

// Check applies the passing of time: the end of a mute or of an acknowledgement.
func (t Track) Check(rule Rule, now time.Time) (Track, []Made) {
	if t.acknowledgementEnded(now) {
		t.Acknowledged = nil
		return t.made(rule, Made{Transition: target.AlertStillFiring, Reason: acknowledgementEnded}, now)
	}
	switch {
	case rule.Muted || t.Firing && rule.Failing || t.releasedAt(rule).After(input.Later(now, t.ChangedAt)):
	case t.Firing && !t.Open:
		return t.made(rule, Made{Transition: target.AlertFiring, Reason: releases[t.Kept]}, now)
	case !t.Firing && t.Open:
		return t.made(rule, Made{Transition: target.AlertResolved, Reason: "it ended while the alert was muted"}, now)
	}
	return t, nil
}

// Reasons of transitions that were not caused by a run.
const acknowledgementEnded = "its acknowledgement ended"

var releases = map[Kept]string{KeptMuted: "the mute of the alert ended", KeptTooSoon: "it holds again, and did not end within five minutes",
	KeptFailing: "it still holds after the failure of the job has ended"}

// releasedAt returns when a notification that is held back may be sent; zero means now.
func (t Track) releasedAt(rule Rule) (at time.Time) {
	if rule.Muted {
		at = rule.MutedUntil
	}
	if t.Firing && t.Told == target.AlertResolved {
		at = input.Later(at, t.ToldAt.Add(rule.Least))
	}
	return at
}

// acknowledgementEnded reports whether the time of an acknowledgement has passed. Then the condition is notified
// again.
func (t Track) acknowledgementEnded(now time.Time) bool {
	return t.Acknowledged != nil && t.Acknowledged.Until != nil && !t.Acknowledged.Until.After(now)
}

// Acknowledge stores who knows about the condition, which must hold.
func (t Track) Acknowledge(rule Rule, ack AcknowledgedAlert, now time.Time) (Track, []Made) {
	t.Acknowledged = &ack
	return t.made(rule, Made{Transition: target.AlertAcknowledged, By: ack.By, Reason: ack.Reason}, now)
}

// made completes a transition, and decides whether it is notified.
func (t Track) made(rule Rule, m Made, now time.Time) (Track, []Made) {
	now = now.UTC().Truncate(time.Millisecond)
	if !now.After(t.ChangedAt) {
		now = t.ChangedAt.Add(time.Millisecond)
	}
	t.Sequence++
	t.ChangedAt = now
	if m.At, m.Sequence, m.After, m.AfterIn = now, t.Sequence, t.ToldAt, t.ToldIn; m.Since.IsZero() {
		m.Since = t.Since
	}
	if m.Transition != target.AlertResolved {
		m.Count = t.Count
	}
	m.Kept = t.keeps(rule, m.Transition)
	t.Kept = m.Kept
	switch {
	case m.Kept == KeptRecovery:
		t.Open = false // no notification of its end is due
	case m.Kept == "":
		t.Told, t.ToldAt, t.ToldIn = m.Transition, now, ""
		t.Open = t.Firing
	}
	return t, []Made{m}
}

// keeps returns why a transition that t has just made is not notified; empty if it is.
func (t Track) keeps(rule Rule, transition target.AlertTransition) Kept {
	switch {
	case transition == target.AlertResolved && !t.Open:
		return KeptUntold
	case transition == target.AlertResolved && !rule.Recovery:
		return KeptRecovery
	case rule.Muted:
		return KeptMuted
	case rule.Failing && (transition == target.AlertFiring || transition == target.AlertAcknowledged && !t.Open):
		return KeptFailing
	case transition == target.AlertFiring && t.releasedAt(rule).After(t.ChangedAt):
		return KeptTooSoon
	case transition == target.AlertStillFiring && t.Acknowledged != nil:
		return KeptAcknowledged
	}
	return ""
}

// Overtakes reports whether a later notification than n was sent, so that n is out of date. An acknowledgement alone
// does not make the notification of the condition out of date.
func (t Track) Overtakes(n target.AlertNotification) bool {
	if t.Told == target.AlertAcknowledged && t.Since.Equal(n.Since) && n.Transition != target.AlertAcknowledged {
		return false
	}
	return t.ToldAt.After(n.At)
}

// Armed reports whether the end of any run of the job may change the track.
func (t Track) Armed() bool { return t.Firing || t.Count > 0 }

// KeptBack reports whether a notification is held back.
func (t Track) KeptBack() bool { return t.Firing != t.Open }

// Idle reports whether the condition has no state.
func (t Track) Idle() bool {
	return !t.Firing && !t.Open && t.Count == 0 && t.MeasuredFrom.IsZero()
}

// CheckAt returns when time alone may change the track: when a notification that is held back may be sent, when an
// acknowledgement ends, or when the condition is to be checked; zero means never.
func (t Track) CheckAt(rule Rule) (at time.Time) {
	earliest := func(other time.Time) {
		if !other.IsZero() && (at.IsZero() || other.Before(at)) {
			at = other
		}
	}
	earliest(t.LookAt)
	if t.KeptBack() {
		earliest(t.releasedAt(rule))
	}
	if t.Acknowledged != nil && t.Acknowledged.Until != nil {
		earliest(*t.Acknowledged.Until)
	}
	return at
}

// State returns t as people see it, without the state of its notification.
func (t Track) State(alert Alert, job string, now time.Time) State {
	state := State{App: alert.App, Alert: alert.Name, Job: job, Condition: t.Condition, Severity: alert.Severity(),
		Firing: t.Firing, Since: t.Since, Count: t.Count,
		Run: t.Run, Class: t.Class, Error: t.Error, Sequence: t.Sequence, Acknowledged: t.Acknowledged}
	if state.Since.IsZero() {
		state.Since = t.MeasuredFrom
	}
	if rule, _ := alert.RuleOf(t.Condition, now); rule.Muted && t.KeptBack() {
		state.MutedUntil = &rule.MutedUntil
	}
	return state
}
