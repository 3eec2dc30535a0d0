package plan

import (
	"cmp"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Entry is the next fire of one trigger.
type Entry struct {
	dispatcher.DueTrigger
	*KnownTrigger
	Queue  pool.QueueKey
	Weight int // of its app
	// Job is the job at the trigger's revision, which a claim executes; nil: the job has changed, and the claim will be
	// lost.
	Job   *preparedJob
	index int  // in the heap; -1: it is due
	stale bool // planned again since it became due
}

// supersedes reports whether e is newer than the planned fire of its trigger.
func (e *Entry) supersedes(old *Entry) bool { return supersedes(&e.DueTrigger, &old.DueTrigger) }

// supersedes reports whether one reading of a trigger is newer than another.
func supersedes(e, old *dispatcher.DueTrigger) bool {
	return cmp.Or(
		cmp.Compare(e.Revision, old.Revision),
		cmp.Compare(e.CalendarRevision, old.CalendarRevision),
		e.NextFireTime.Compare(old.NextFireTime),
	) > 0
}

// Advance returns the compare-and-swap of the trigger of e, without the next fire.
func (e *Entry) Advance() dispatcher.Advance {
	return dispatcher.Advance{
		TriggerID: e.ID, JobID: e.JobID, Revision: e.Revision, CalendarRevision: e.CalendarRevision,
		Prev: e.PrevFireTime, Next: e.NextFireTime, Live: e.live(),
	}
}

// live reports whether the run of e needs a row of its own from its claim on, because something changes it before it
// ends, or reads it afterwards.
func (e *Entry) live() bool {
	_, delayed := e.Schedule.FixedDelay()
	return delayed || e.Job == nil || e.Job.Delivery == dispatcher.AtMostOnce || e.Job.Slots() > 0 ||
		e.Job.EndpointPolicy() != run.ConcurrencyAllow ||
		e.Job.Target.Group != nil && e.Job.Target.Group.Strategy == target.Broadcast
}

// AdvanceTo is Advance with the next fire.
func (e *Entry) AdvanceTo(then, due time.Time) dispatcher.Advance {
	advance := e.Advance()
	advance.Then, advance.ThenDue = then, due
	return advance
}

// DueAfter returns when the fire after e is due. Jitter could make it due earlier than e, but a
// trigger fires in order, and waiting for its turn is not lateness.
func (e *Entry) DueAfter(then, now time.Time) time.Time {
	if e.late() {
		return e.pacedAfter(then, now)
	}
	return input.Later(then.Add(e.Schedule.Delay(then)), e.DueAt)
}

// catchUpPause is the longest pause between two fires of a trigger that fire_all catches up.
const catchUpPause = time.Second

// Decide returns the next step in settling the missed fires of one trigger, and those that are only late with them: of
// fires left for claims, a slow node would find the first missed again and again. It skips fires that are too old, or too
// many, first. Fires so recent that jitter may still delay them are left to run.
func (e *Entry) Decide(now time.Time) (dispatcher.Settlement, error) {
	until := input.Later(now.Add(-e.Jitter), e.NextFireTime)
	why := fmt.Sprintf("not claimed within %s of %s", e.MisfireAfter, input.FormatInstant(e.DueAt))
	if oldest := now.Add(-e.catchUpWindow); e.NextFireTime.Before(oldest) && e.MisfirePolicy != dispatcher.Skip {
		tooOld := oldest.Add(-time.Millisecond)
		if tooOld.After(until) {
			tooOld = until
		}
		return e.settleUntil(tooOld, dispatcher.DecisionSkip,
			fmt.Sprintf("%s, and older than the catch-up window of %s", why, e.catchUpWindow))
	}
	switch e.MisfirePolicy {
	case dispatcher.Skip:
		return e.settleUntil(until, dispatcher.DecisionSkip, why)
	case dispatcher.FireAll:
		return e.catchUp(until, now, why)
	}
	return e.settleUntil(until, dispatcher.DecisionFireOnce, why)
}

// settleUntil decides about all missed fires up to an instant at once.
func (e *Entry) settleUntil(until time.Time, decision dispatcher.Decision, why string) (dispatcher.Settlement, error) {
	last, count, next, err := dispatcher.Missed(e.Schedule, e.NextFireTime, until)
	step := dispatcher.Settlement{Advance: e.Advance(), To: last, Count: count, Decision: decision, Reason: why}
	if decision == dispatcher.DecisionFireOnce {
		step.CatchUp = last
	}
	if next != nil {
		step.Then, step.ThenDue = *next, next.Add(e.Schedule.Delay(*next))
	}
	return step, err
}

// catchUp runs the first of the missed fires; the others follow by ordinary claims, each a little after the one before.
// Of more than MostCaughtUp fires, it skips the oldest first. The trigger itself records the progress.
func (e *Entry) catchUp(until, now time.Time, why string) (dispatcher.Settlement, error) {
	last, count, next, err := dispatcher.MissedButLatest(e.Schedule, e.NextFireTime, until, dispatcher.MostCaughtUp)
	if err != nil {
		return dispatcher.Settlement{}, err
	}
	if count > 0 {
		return dispatcher.Settlement{
			Advance: e.AdvanceTo(next, now), To: last, Count: count, Decision: dispatcher.DecisionSkip,
			Reason: fmt.Sprintf("%s, and more than the latest %d, which are caught up", why, dispatcher.MostCaughtUp),
		}, nil
	}
	step := dispatcher.Settlement{
		Advance: e.Advance(), To: e.NextFireTime, Count: 1, Decision: dispatcher.DecisionFireAll, Reason: why, CatchUp: e.NextFireTime,
	}
	then, ok, err := e.Schedule.Find(e.NextFireTime)
	if ok {
		step.Advance = e.AdvanceTo(then, e.pacedAfter(then, now))
	}
	return step, err
}

// After returns e after a settlement. overdue means that it is still too late and needs another step.
func (e *Entry) After(step dispatcher.Settlement, now time.Time) (after Entry, overdue bool) {
	after = *e
	after.PrevFireTime, after.NextFireTime, after.DueAt = step.Next, step.Then, step.ThenDue
	return after, !step.Then.IsZero() && step.ThenDue.Add(e.MisfireAfter).Before(now)
}

// Claimable reports whether e is by the zones of now, and not missed since it was planned. What fire_all catches up may wait.
func (e *Entry) Claimable(now time.Time) bool {
	return e.Zones == schedule.CurrentZones() && (e.late() || now.Sub(e.DueAt) <= e.MisfireAfter)
}

// late reports whether e is one of the missed fires that fire_all catches up: jitter never makes a fire due so long
// after its scheduled time.
func (e *Entry) late() bool { return e.DueAt.After(e.NextFireTime.Add(e.Jitter)) }

// pacedAfter returns when the fire after e is due if e is caught up at now. If that fire was missed too, it follows
// after a pause: a second or, for fires so frequent that this would never catch up, a quarter of the time between the
// two.
func (e *Entry) pacedAfter(then, now time.Time) time.Time {
	if e.late() {
		now = input.Later(now, e.DueAt)
	}
	if !then.Add(e.Jitter).Before(now) {
		return input.Later(now, then.Add(e.Schedule.Delay(then)))
	}
	return now.Add(min(catchUpPause, then.Sub(e.NextFireTime)/4))
}

// scheduleAfter sets the fire that follows the end of a run; none if the trigger has had all of its runs.
func (e *Entry) scheduleAfter(ended dispatcher.EndedDelay) error {
	if count := ended.Spec.RepeatCount; count > 0 && ended.Fired+1 >= count {
		return nil
	}
	next, ok, err := e.Schedule.Find(ended.EndedAt)
	if ok {
		e.NextFireTime, e.DueAt = next, next.Add(e.Schedule.Delay(next))
	}
	return err
}

// Earlier returns the earlier of two times; the other if one is zero.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
