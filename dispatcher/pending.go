package dispatcher

import (
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// A fire is pending if it is due and neither claimed nor settled: jitter delays it, a pause holds it, or no node
// claimed it in time. A change of its schedule must not lose it. A pending fire that the new schedule contains stays.
// The misfire policy settles the others here and now, because the schedule that contained them no longer exists.

// catchUpPause is the time between two runs of fire_all that a change of a schedule queues; nodes use the same pause.
const catchUpPause = time.Second

// pendingChange is a change of the schedule of a trigger that may have pending fires.
type pendingChange struct {
	job  Job // names the trigger
	name string
	// before and was are the old trigger and its schedule. If was is nil, only the first pending fire is known.
	before Trigger
	was    *schedule.Schedule
	// after is the trigger as it will be, and is its schedule.
	after Trigger
	is    *schedule.Schedule
	// left is how many of the pending fires the new repeat_count allows; negative if it does not bound them.
	left int
	// otherTimes is true if the rules of the calendar or of the zone changed, which the definitions do not show.
	otherTimes bool
	now        time.Time
	reason     string // the change, in words
	budget     *schedule.Budget
}

// pending holds the fires that were due, in order: a range that is only counted, and the latest ones, which are known.
type pending struct {
	older run.MissedRange
	times []time.Time
	// until is the last time that the new repeat count allows. stays has an entry for each of times.
	until time.Time
	stays []bool
}

// settle returns the first pending fire that stays, nil if there is none, when it is due, and the decisions about the
// others. Fires stay if the new schedule has no other time between the first of them and now.
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
	p.stays = c.staying(p)
	for i, stays := range p.stays {
		if stays {
			dueAt := c.dueAt(p.times[i])
			next, due = &p.times[i], &dueAt
			break
		}
	}
	return next, due, c.decide(p)
}

// staying reports which pending fires stay. The new schedule may have no other time between the first of them and now, because
// the trigger would run that, too. With fire_once, one run stands for all other fires, so the others must be one range.
func (c *pendingChange) staying(p pending) []bool {
	stays := make([]bool, len(p.times))
	var following *time.Time
	for i := len(p.times) - 1; i >= 0; i-- {
		if !c.contains(p, p.times[i]) {
			continue
		}
		next, ok, err := c.is.FindWithin(c.budget, p.times[i])
		costly := err != nil && following == nil && c.budget.Left() > 0 // a node will put the trigger into state error
		owed := ok && !next.After(c.now)
		if err != nil && !costly || owed != (following != nil) || owed && !next.Equal(*following) {
			break
		}
		stays[i], following = true, &p.times[i]
	}
	pieces, last := 0, -1
	for i := range stays {
		if !stays[i] {
			if last = i; i == 0 || stays[i-1] {
				pieces++
			}
		}
	}
	if pieces > 1 && c.after.MisfirePolicy != FireAll && c.after.MisfirePolicy != Skip {
		clear(stays[:last])
	}
	return stays
}

// sameUntilNow reports whether the ends and repeat counts of both schedules allow the same fires up to now.
func (c *pendingChange) sameUntilNow() bool {
	goesOn := func(end *time.Time) bool { return end == nil || !end.Before(c.now) }
	return goesOn(c.before.EndAt) && goesOn(c.after.EndAt) && c.before.RepeatCount == c.after.RepeatCount &&
		(c.after.RepeatCount == 0 || input.SameInstant(c.before.CountedFrom, c.after.CountedFrom))
}

// pending lists the fires that were due.
func (c *pendingChange) pending() (p pending) {
	first := *c.before.NextFireTime
	if c.was == nil {
		return pending{times: []time.Time{first}}
	}
	at := first
	last, count, latest, err := MissedButLatest(c.was, first, c.now, MostCaughtUp)
	switch {
	case err != nil && c.contains(pending{until: c.now}, first): // neither this code nor a node can find the others
		return pending{times: []time.Time{first}}
	case err != nil || c.budget.Left() < missedSteps/2: // they are counted within the budget
		if last, count, _, _, err = missedFires(c.budget, c.was, first, c.now); err != nil {
			last = c.now
		}
		return pending{older: run.MissedRange{From: first, To: last, Count: count}}
	case count > 0:
		p.older, at = run.MissedRange{From: first, To: last, Count: count}, latest
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

// onTime reports whether the new schedule contains a pending fire and it is not yet missed.
func (c *pendingChange) onTime(p pending, at time.Time) bool {
	after := c.after.MisfireAfter
	if after == 0 {
		after = DefaultMisfireAfter
	}
	return !c.dueAt(at).Add(after.Std()).Before(c.now) && c.contains(p, at)
}

// fate is the outcome of a pending fire.
type fate int

const (
	fateStays fate = iota
	fateRuns       // as itself: it is on time and in the new schedule, but cannot stay
	fateTooOld
	fateMissed // the misfire policy decides
)

func (c *pendingChange) fateOf(p pending, i int) fate {
	switch {
	case p.stays[i]:
		return fateStays
	case c.onTime(p, p.times[i]):
		return fateRuns
	}
	return c.fateAt(p.times[i])
}

// fateAt returns the fate of a missed fire.
func (c *pendingChange) fateAt(at time.Time) fate {
	window := c.after.CatchUpWindow
	if c.after.MisfirePolicy != Skip && window > 0 && at.Before(c.now.Add(-window.Std())) {
		return fateTooOld
	}
	return fateMissed
}

// decide settles the pending fires that do not stay, in pieces of one fate.
func (c *pendingChange) decide(p pending) (decided []Misfire) {
	span, of, runAt := p.older, c.fateAt(p.older.To), c.now
	if c.after.MisfirePolicy == FireAll && span.Count > 0 && of == fateMissed {
		decided = append(decided, c.misfire(span, DecisionSkip, fmt.Sprintf("more than the latest %d, which are caught up", MostCaughtUp)))
		span = run.MissedRange{}
	}
	for i, at := range p.times {
		next := c.fateOf(p, i)
		if next != of {
			decided, span, of = append(decided, c.all(span, of)...), run.MissedRange{}, next
		}
		switch {
		case next == fateStays:
		case next == fateRuns:
			decided = append(decided, c.run(at, c.dueAt(at), "still in the schedule"))
		case next == fateMissed && c.after.MisfirePolicy == FireAll:
			decided = append(decided, c.run(at, runAt, goneReason))
			runAt = runAt.Add(catchUpPause)
		case span.Count == 0:
			span = run.MissedRange{From: at, To: at, Count: 1}
		default:
			span.To, span.Count = at, span.Count+1
		}
	}
	return append(decided, c.all(span, of)...)
}

// goneReason is the reason of decisions about pending fires. Fires that were missed already are settled with the
// others, even if the new schedule contains them.
const goneReason = "missed, or no longer in the schedule"

// all returns the decision about a range of one fate; none if the range is empty.
func (c *pendingChange) all(span run.MissedRange, of fate) []Misfire {
	switch {
	case span.Count == 0:
		return nil
	case of == fateTooOld:
		return []Misfire{c.misfire(span, DecisionSkip, fmt.Sprintf("older than the catch-up window of %s", c.after.CatchUpWindow))}
	case c.after.MisfirePolicy == Skip:
		return []Misfire{c.misfire(span, DecisionSkip, goneReason)}
	}
	m := c.misfire(span, DecisionFireOnce, goneReason)
	m.RunDueAt = c.now
	m.Run = run.Key{TriggerID: m.TriggerID, ScheduledAt: span.To, Kind: run.KindCatchUp}.String()
	return []Misfire{m}
}

// run lets a pending fire run as itself.
func (c *pendingChange) run(at, due time.Time, why string) Misfire {
	m := c.misfire(run.MissedRange{From: at, To: at, Count: 1}, DecisionFireAll, why)
	m.RunDueAt = due
	m.Run = run.Key{TriggerID: m.TriggerID, ScheduledAt: at, Kind: run.KindSchedule}.String()
	return m
}

func (c *pendingChange) misfire(span run.MissedRange, decision Decision, why string) Misfire {
	return Misfire{
		App: c.job.App, Job: c.job.Name, Trigger: c.name, JobID: c.job.Key(), TriggerID: c.job.TriggerKey(c.name),
		From: span.From, To: span.To, Count: span.Count, Decision: decision, Reason: c.reason + "; " + why, DecidedAt: c.now,
	}
}
