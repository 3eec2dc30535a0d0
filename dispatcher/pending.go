package dispatcher

import (
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// A fire is pending if it is due and neither claimed nor settled: jitter delays it, a pause holds it, or no node was there
// in time. A change of its schedule must not lose it. A pending fire that the new schedule contains stays; the others are
// settled by the misfire policy, here and now, because the schedule that contained them is no more.

// catchUpPause is the time between two runs of fire_all that a change of a schedule queues, as between those that a node makes.
const catchUpPause = time.Second

// pendingChange is a change of the schedule of a trigger that may have pending fires.
type pendingChange struct {
	job  Job // names the trigger
	name string
	// before is the trigger as it was, and was its schedule; nil: it cannot be evaluated, and only the first fire is known.
	before Trigger
	was    *schedule.Schedule
	// after is the trigger as it will be, and is its schedule.
	after Trigger
	is    *schedule.Schedule
	// left is how many of the pending fires the new repeat_count allows; less than 0: it does not bound them.
	left int
	// otherTimes tells that the rules of the calendar or of the zone were changed, which the definitions do not show.
	otherTimes bool
	now        time.Time
	reason     string // what was changed
	budget     *schedule.Budget
}

// pending are the fires that were due, in order: those in a range, which are counted only, and the latest, which are known.
type pending struct {
	older MissedRange
	times []time.Time
	// until is the last time that the new repeat count allows.
	until time.Time
}

// settle returns the first pending fire that stays, nil if there is none, and when it is due, and what is decided about
// those before it. A fire stays with its trigger if the two schedules agree from it on; if it is not yet missed, and the
// new schedule has more or fewer fires after it, a run of its own is queued for it.
func (c *pendingChange) settle() (next, due *time.Time, decided []Misfire) {
	if c.before.NextFireTime == nil || c.before.NextFireTime.After(c.now) {
		return nil, nil, nil
	}
	if c.was != nil && !c.otherTimes && c.before.Calendar == c.after.Calendar && c.sameUntilNow() && c.was.SameInstants(c.is) {
		return c.before.NextFireTime, c.before.DueAt, nil
	}
	p := c.pending()
	p.until = c.now
	if k := c.left - p.older.Count; c.left >= 0 && k <= 0 {
		p.until = time.Time{}
	} else if c.left >= 0 && k < len(p.times) {
		p.until = p.times[k-1]
	}
	stays := len(p.times)
	for stays > 0 && c.agreeFrom(p, stays-1) {
		stays--
	}
	if stays < len(p.times) {
		at := p.times[stays]
		dueAt := c.dueAt(at)
		next, due = &at, &dueAt
	}
	p.times = p.times[:stays]
	return next, due, c.decide(p)
}

// sameUntilNow reports whether end and repeat count of both leave the same fires up to now.
func (c *pendingChange) sameUntilNow() bool {
	goesOn := func(end *time.Time) bool { return end == nil || !end.Before(c.now) }
	return goesOn(c.before.EndAt) && goesOn(c.after.EndAt) && c.before.RepeatCount == c.after.RepeatCount &&
		(c.after.RepeatCount == 0 || sameInstant(c.before.CountedFrom, c.after.CountedFrom))
}

// pending lists the fires that were due.
func (c *pendingChange) pending() (p pending) {
	first := *c.before.NextFireTime
	if c.was == nil {
		return pending{times: []time.Time{first}}
	}
	at := first
	if last, count, latest, err := MissedButLatest(c.was, first, c.now, MostCaughtUp); err != nil || c.budget.Left() < missedSteps/2 {
		last, count, _, _, err = missedFires(c.budget, c.was, first, c.now)
		if err != nil {
			last = c.now
		}
		return pending{older: MissedRange{first, last, count}}
	} else if count > 0 {
		p.older, at = MissedRange{first, last, count}, latest
	}
	for ok := true; ok && !at.After(c.now); {
		p.times = append(p.times, at)
		var err error
		if at, ok, err = c.was.FindWithin(c.budget, at); err != nil {
			break
		}
	}
	return p
}

// agreeFrom reports whether the new schedule has one pending fire, and after it exactly those that follow, up to now.
func (c *pendingChange) agreeFrom(p pending, i int) bool {
	if !c.contains(p, p.times[i]) {
		return false
	}
	next, ok, err := c.is.FindWithin(c.budget, p.times[i])
	if i+1 < len(p.times) {
		return err == nil && ok && next.Equal(p.times[i+1])
	}
	return err == nil && (!ok || next.After(c.now))
}

func (c *pendingChange) contains(p pending, at time.Time) bool {
	next, ok, err := c.is.FindWithin(c.budget, at.Add(-time.Millisecond))
	return err == nil && ok && next.Equal(at) && !at.After(p.until)
}

// dueAt is when a pending fire was due. The new jitter is for later ones.
func (c *pendingChange) dueAt(at time.Time) time.Time {
	switch {
	case at.Equal(*c.before.NextFireTime) && c.before.DueAt != nil:
		return *c.before.DueAt
	case c.was == nil:
		return at
	}
	return at.Add(c.was.Delay(at))
}

// onTime reports whether a pending fire is contained in the new schedule and not yet missed.
func (c *pendingChange) onTime(p pending, at time.Time) bool {
	after := c.after.MisfireAfter
	if after == 0 {
		after = DefaultMisfireAfter
	}
	return !c.dueAt(at).Add(after.Std()).Before(c.now) && c.contains(p, at)
}

// decide settles pending fires: those that are on time run as themselves, and the misfire policy decides about the others.
func (c *pendingChange) decide(p pending) (decided []Misfire) {
	oldest := c.now.Add(-c.after.CatchUpWindow.Std())
	if c.after.MisfirePolicy != Skip && c.after.CatchUpWindow > 0 {
		var old pending
		old, p = p.before(oldest)
		decided = c.all(old, DecisionSkip, fmt.Sprintf("older than the catch-up window of %s", c.after.CatchUpWindow))
	}
	if c.after.MisfirePolicy == FireAll {
		return append(decided, c.fireAll(p)...)
	}
	decision := DecisionFireOnce
	if c.after.MisfirePolicy == Skip {
		decision = DecisionSkip
	}
	missed := pending{older: p.older}
	for _, at := range p.times {
		if !c.onTime(p, at) {
			missed.times = append(missed.times, at)
			continue
		}
		decided = append(decided, c.all(missed, decision, goneReason)...)
		decided = append(decided, c.run(at, c.dueAt(at), "still in the schedule"))
		missed = pending{}
	}
	return append(decided, c.all(missed, decision, goneReason)...)
}

// goneReason is why a decision was made about pending fires. Those that were missed already and that the new schedule contains
// are settled with the others.
const goneReason = "missed, or no longer in the schedule"

// fireAll gives each fire a run of its own, the latest MostCaughtUp at most.
func (c *pendingChange) fireAll(p pending) []Misfire {
	decided := c.all(pending{older: p.older}, DecisionSkip, fmt.Sprintf("more than the latest %d, which are caught up", MostCaughtUp))
	next := c.now
	for _, at := range p.times {
		if c.onTime(p, at) {
			decided = append(decided, c.run(at, c.dueAt(at), "still in the schedule"))
			continue
		}
		decided = append(decided, c.run(at, next, goneReason))
		next = next.Add(catchUpPause)
	}
	return decided
}

// before parts pending fires at a time. A range is older than all that are known, and is not parted.
func (p pending) before(oldest time.Time) (old, rest pending) {
	n := 0
	for n < len(p.times) && p.times[n].Before(oldest) {
		n++
	}
	rest.times, rest.until = p.times[n:], p.until
	if p.older.Count > 0 && !p.older.To.Before(oldest) {
		rest.older = p.older
		return pending{}, rest
	}
	return pending{older: p.older, times: p.times[:n]}, rest
}

// all is one decision about pending fires; none if there are none.
func (c *pendingChange) all(p pending, decision Decision, why string) []Misfire {
	span := p.older
	if n := len(p.times); n > 0 {
		if span.Count == 0 {
			span.From = p.times[0]
		}
		span.To, span.Count = p.times[n-1], span.Count+n
	}
	if span.Count == 0 {
		return nil
	}
	m := c.misfire(span, decision, why)
	if decision == DecisionFireOnce {
		m.RunDueAt = c.now
		m.Run = RunKey{TriggerID: m.TriggerID, ScheduledAt: span.To, Kind: KindCatchUp}.String()
	}
	return []Misfire{m}
}

// run lets a pending fire run as itself.
func (c *pendingChange) run(at, due time.Time, why string) Misfire {
	m := c.misfire(MissedRange{at, at, 1}, DecisionFireAll, why)
	m.RunDueAt = due
	m.Run = RunKey{TriggerID: m.TriggerID, ScheduledAt: at, Kind: KindSchedule}.String()
	return m
}

func (c *pendingChange) misfire(span MissedRange, decision Decision, why string) Misfire {
	return Misfire{
		App: c.job.App, Job: c.job.Name, Trigger: c.name, JobID: c.job.Key(), TriggerID: c.job.TriggerKey(c.name),
		From: span.From, To: span.To, Count: span.Count, Decision: decision, Reason: c.reason + "; " + why, DecidedAt: c.now,
	}
}
