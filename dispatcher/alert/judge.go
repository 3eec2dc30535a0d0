package alert

import (
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// End is the end of a run, or a decision about missed fires, as alerts see it.
type End struct {
	run.Key
	Trigger   string
	State     run.State
	Class     run.Class
	Error     string
	Attempt   int
	StartedAt time.Time // of the first attempt; zero without one
	EndedAt   time.Time // or the time of the decision
	// OwedFrom is since when the run could begin, if a pause or a change kept it from beginning in time; else zero.
	OwedFrom time.Time
	// Missed is how many fires were missed; 0 if a run ended. Held is true if pauses held them.
	Missed int
	Held   bool
}

// Facts are the input for checking a condition at some time.
type Facts struct {
	// Watched is true if fires of the job are expected: the job and its app are enabled, and the job is not paused.
	Watched bool
	// Held is true if each trigger of the job is disabled or paused; with a nil Next, the job has none.
	Held bool
	// ChangedAt is the latest change of the job, its app and the alert.
	ChangedAt time.Time
	// LastSuccess is when the last run succeeded; zero if none did recently or, for no_success, within the kept history.
	LastSuccess time.Time
	// DeclaredAt is when the job was declared; zero if older runs are not known.
	DeclaredAt time.Time
	// Next returns the first scheduled time after an instant, without those that a calendar excludes; ok is false if there
	// is none. nil: the job has no schedule, or it is not known.
	Next func(after time.Time) (next time.Time, ok bool)
	// Late is the earliest fire that has not begun, since when it could begin.
	Late Case
	// Missed is true if Late counts as missed, although no node can settle it.
	Missed bool
	// Unclaimed is the name of the trigger of Late if no node has claimed it, so that it has no run; else empty.
	Unclaimed string
	// Oldest is the run with the longest attempt under way. Accepted is true if its target has accepted the attempt, and
	// the run waits for the callback.
	Oldest   Case
	Accepted bool
	// Blocked is the run that blocks the job, since when it has the slot, and what to do.
	Blocked Case
	// Burn is the state of the job's error budget; nil if the job has no objective, or no fires are counted yet.
	Burn *dispatcher.ObjectiveBurn
}

// Case is a run or fire that a condition is about, since when, and why; zero if there is none.
type Case struct {
	run.Key
	Since time.Time
	Why   string
}

// How often conditions are checked, and how long the state of a condition is kept after its end.
const (
	lookSoon  = time.Minute
	lookLater = 10 * time.Minute
	keptFor   = 24 * time.Hour
	// countedAfter is how long after the counted time of an objective the next five minutes are counted, and
	// countsOld is the age at which counts say nothing about now.
	countedAfter = 6 * time.Minute
	countsOld    = 30 * time.Minute
)

// After applies the end of a run, or missed fires. The caller leaves out runs of backfills.
func (t Track) After(alert Alert, rule Rule, end End, now time.Time) (Track, []Made) {
	seen := end.observedFor(t.Condition)
	failed, relevant := end.failed(), false
	switch t.Condition {
	case target.AlertFailure:
		relevant = failed || end.State == run.Succeeded
		seen.Met = count(failed)
	case target.AlertMissed:
		if seen.Met, relevant = end.Missed, end.ofSchedule(); relevant {
			t = t.served(end)
		}
	case target.AlertLate:
		if t.Waits { // another fire that begins in time does not end it
			if t.waitedFor(end) {
				t.LookAt = now
			}
			return t, nil
		}
		seen.LateBy, relevant = end.lateBy(alert.LateAfter.Std(), rule.FailedTo)
		seen.Met = count(seen.LateBy > 0)
	case target.AlertNoSuccess:
		if relevant = end.State == run.Succeeded; relevant {
			t = t.measuredFrom(end.EndedAt, alert.NoSuccessFor.Std())
		}
	case target.AlertOverrun, target.AlertBlocked:
		if t.Firing {
			t.LookAt = now // another run may take too long, too, or have the slot
		}
	}
	if !relevant || seen.Met == 0 && !t.Armed() {
		return t, nil
	}
	t, made := t.Observe(rule, seen, now)
	return t.scheduled(now), made
}

// measuredFrom returns t with the time that no_success bounds, unless it began later: with a run that ended before another.
func (t Track) measuredFrom(success time.Time, most time.Duration) Track {
	if success.After(t.MeasuredFrom) {
		t.MeasuredFrom, t.LookAt = success, success.Add(most)
	}
	return t
}

// ofSchedule reports whether scheduled fires were missed, other than by a pause, or one ran.
func (e End) ofSchedule() bool { return e.Missed > 0 && !e.Held || e.Kind == run.KindSchedule }

// served returns t after a node has settled or run the fire that no node served. It is among the missed ones.
func (t Track) served(end End) Track {
	if t.Waits {
		t.Count, t.Waits = t.Count-min(end.Missed, 1), false
	}
	return t
}

// waitedFor reports whether an end may be that of the late fire, which had no run, or is among the missed ones.
func (t Track) waitedFor(end End) bool {
	return t.Run == "" || end.Missed > 0 || t.Run == end.Key.String()
}

func (e End) failed() bool {
	return e.State == run.Failed || e.State == run.TimedOut || e.State == run.Lost
}

// observedFor returns an end as a condition observes it: its error says nothing about a condition other than failure.
func (e End) observedFor(condition target.AlertCondition) Observation {
	seen := Observation{At: e.EndedAt, Trigger: e.Trigger, ScheduledAt: e.ScheduledAt}
	if e.Missed == 0 {
		seen.Run = e.Key.String()
	}
	if condition == target.AlertFailure || e.Missed > 0 {
		seen.Class, seen.Error, seen.Attempt = e.Class, e.Error, e.Attempt
	}
	return seen
}

// lateBy returns by how much a fire began later than most; 0 if it was in time, or was late before a failure of the job
// that people know ended at failedTo. begun is false for other runs, and without an attempt.
func (e End) lateBy(most time.Duration, failedTo time.Time) (by time.Duration, begun bool) {
	if e.Missed > 0 || e.Kind != run.KindSchedule || e.StartedAt.IsZero() {
		return 0, false
	}
	from := input.Later(e.ScheduledAt, e.OwedFrom)
	if by := e.StartedAt.Sub(from); by > most && !failedTo.After(from.Add(most)) {
		return by, true
	}
	return 0, true
}

func count(met bool) int {
	if met {
		return 1
	}
	return 0
}

// scheduled returns t with the next time to check a condition that does not depend on time.
func (t Track) scheduled(now time.Time) Track {
	switch {
	case t.Condition == target.AlertNoSuccess || t.Condition == target.AlertOverrun || t.Condition == target.AlertObjective:
	case t.Idle():
		t.LookAt = now.Add(keptFor)
	case (t.Condition == target.AlertFailure || t.Condition == target.AlertMissed) && t.Firing &&
		(t.LookAt.IsZero() || t.LookAt.After(now.Add(lookLater))):
		t.LookAt = now.Add(lookSoon)
	case t.Firing && t.Kept == KeptFailing: // until the failure ends
		t.LookAt = now.Add(lookSoon)
	case !t.Firing:
		t.LookAt = time.Time{}
	}
	return t
}

// Begins returns the track of a condition that depends on time, measured from now.
func (t Track) Begins(alert Alert, now time.Time) Track {
	switch t.Condition {
	case target.AlertNoSuccess:
		t.MeasuredFrom, t.LookAt = now, now.Add(alert.NoSuccessFor.Std())
	case target.AlertOverrun, target.AlertObjective:
		t.MeasuredFrom, t.LookAt = now, now
	}
	return t
}

// Expired reports whether a track is to be removed, because the condition has no state any more.
func (t Track) Expired(now time.Time) bool { return t.Idle() && !t.LookAt.After(now) }

// Look checks the condition, if it is time, and applies the result and the passing of time. Facts are as of now.
func (t Track) Look(alert Alert, rule Rule, facts Facts, now time.Time) (Track, []Made) {
	if t.LookAt.IsZero() || t.LookAt.After(now) {
		return t.Check(rule, now)
	}
	var seen *Observation
	switch t.Condition {
	case target.AlertFailure:
		t, seen = t.lookForRecovery(facts, now)
	case target.AlertMissed:
		t, seen = t.lookForMissed(facts, now)
	case target.AlertNoSuccess:
		t, seen = t.lookForSuccess(alert.NoSuccessFor.Std(), facts, now)
	case target.AlertLate:
		t, seen = t.lookForLate(alert.LateAfter.Std(), facts, now)
	case target.AlertOverrun:
		t, seen = t.lookForOverrun(alert.OverrunAfter.Std(), facts, now)
	case target.AlertObjective:
		t, seen = t.lookForBurn(facts.Burn, now)
	case target.AlertBlocked:
		t, seen = t.lookForBlocker(facts, now)
	}
	if seen == nil {
		return t.Check(rule, now)
	}
	t, made := t.Observe(rule, *seen, now)
	return t.scheduled(now), made
}

// lookForRecovery ends a failure that was followed by a successful run. The end of that run does the same, unless it
// was recorded before the failure.
func (t Track) lookForRecovery(facts Facts, now time.Time) (Track, *Observation) {
	t.LookAt = now.Add(lookLater)
	if t.Firing && facts.LastSuccess.After(t.MetAt) {
		return t, &Observation{At: facts.LastSuccess}
	}
	return t, nil
}

// lookForMissed fires because of a fire that no node serves. It ends if no fire is to come that could end it, once a person
// has seen to the job, or after a day.
func (t Track) lookForMissed(facts Facts, now time.Time) (Track, *Observation) {
	t.LookAt = now.Add(lookLater)
	fires := facts.Watched
	if fires && !t.Waits && facts.Next != nil {
		_, fires = facts.Next(now)
	}
	switch {
	case facts.Missed:
		t.Waits = true
		return t, &Observation{Met: 1, At: now, Trigger: facts.Unclaimed, ScheduledAt: facts.Late.ScheduledAt, Error: facts.Late.Why}
	case t.Firing && !fires && (facts.LastSuccess.After(t.MetAt) || facts.ChangedAt.After(t.MetAt) || now.Sub(t.MetAt) >= keptFor):
		t.Waits = false
		return t, &Observation{At: now, Reason: "no fire of the job is to come"}
	}
	return t, nil
}

func (t Track) lookForSuccess(most time.Duration, facts Facts, now time.Time) (Track, *Observation) {
	from := t.MeasuredFrom
	for _, later := range []time.Time{facts.ChangedAt, facts.LastSuccess} {
		if later.After(from) {
			from = later
		}
	}
	expected := facts.Watched
	if expected && !t.Firing && now.Sub(from) >= most {
		from, expected = facts.expectedFrom(from, most)
	}
	switch {
	case t.Firing && facts.LastSuccess.After(t.Since):
		t.MeasuredFrom, t.LookAt = facts.LastSuccess, facts.LastSuccess.Add(most)
		return t, &Observation{At: facts.LastSuccess}
	case t.Firing:
		t.LookAt = now.Add(lookLater)
		return t, nil
	case !expected:
		t.MeasuredFrom, t.LookAt = now, now.Add(most)
		return t, nil
	case now.Sub(from) < most:
		t.MeasuredFrom, t.LookAt = from, from.Add(most)
		return t, nil
	}
	t.MeasuredFrom, t.LookAt = from, now.Add(lookLater)
	return t, &Observation{Met: 1, At: from.Add(most), LateBy: now.Sub(from), Error: facts.sinceSuccess()}
}

// expectedFrom returns since when a success is missing, if the last one was at from. While no fire is scheduled for longer
// than most, such as over a weekend or on excluded days, none can come: time then counts from one interval before the next
// fire, as if the one before had succeeded. ok is false if the schedule has ended.
func (f Facts) expectedFrom(from time.Time, most time.Duration) (since time.Time, ok bool) {
	if f.Next == nil {
		return from, true
	}
	first, ok := f.Next(from.Add(-time.Millisecond)) // from may be a scheduled time, as this returns it
	if !ok || first.Sub(from) <= most {
		return from, ok
	}
	if second, repeats := f.Next(first); repeats && second.Sub(first) <= most {
		return first.Add(first.Sub(second)), true
	}
	return first, true
}

// sinceSuccess describes since when no run succeeded, after the name of the job.
func (f Facts) sinceSuccess() string {
	switch {
	case !f.LastSuccess.IsZero():
		return "has not succeeded since " + input.FormatInstant(f.LastSuccess)
	case !f.DeclaredAt.IsZero():
		return "has never succeeded since it was declared at " + input.FormatInstant(f.DeclaredAt)
	}
	return "has not succeeded in any run that is known"
}

// lookForLate fires because a fire has not begun, and ends once all late ones have begun or were given up.
func (t Track) lookForLate(most time.Duration, facts Facts, now time.Time) (Track, *Observation) {
	waited, by := t.Waits, now.Sub(facts.Late.Since)
	if t.Waits = !facts.Late.Since.IsZero() && by > most; !t.Waits {
		t.LookAt = time.Time{}
		if waited && t.Firing {
			return t, &Observation{At: now, Run: t.Run}
		}
		if t.KeptBack() {
			t.LookAt = now.Add(lookSoon)
		}
		return t, nil
	}
	t.LookAt = now.Add(lookSoon)
	late := ""
	if facts.Unclaimed == "" {
		late = facts.Late.String()
	}
	if t.Firing {
		t.Run, t.Error = late, facts.Late.Why
		return t, nil
	}
	return t, &Observation{Met: 1, At: facts.Late.Since.Add(most), Trigger: facts.Unclaimed, Run: late,
		ScheduledAt: facts.Late.ScheduledAt, LateBy: by, Error: facts.Late.Why}
}

func (t Track) lookForOverrun(most time.Duration, facts Facts, now time.Time) (Track, *Observation) {
	since := facts.Oldest.Since
	switch took := now.Sub(since); {
	case since.IsZero():
		t.LookAt = now.Add(most) // runs that begin from now on cannot take too long before
	case took <= most:
		t.LookAt = since.Add(most + time.Millisecond)
	case t.Firing:
		t.LookAt, t.Run, t.Error = now.Add(lookSoon), facts.Oldest.String(), facts.overrun(took, most)
		return t, nil
	default:
		t.LookAt = now.Add(lookSoon)
		return t, &Observation{Met: 1, At: since.Add(most), Run: facts.Oldest.String(), ScheduledAt: facts.Oldest.ScheduledAt, LateBy: took,
			Error: facts.overrun(took, most)}
	}
	if t.Firing {
		return t, &Observation{At: now}
	}
	return t, nil
}

// overrun describes the run that takes too long, after the name of its job.
func (f Facts) overrun(took, most time.Duration) string {
	text := "has run for " + input.Duration(took).Rounded() + ", allowed are " + input.Duration(most).Rounded()
	if f.Accepted {
		text += ", and waits for the callback of its target"
	}
	return text
}

// lookForBurn judges how fast an error budget burns, once for each counted five minutes. It ignores old counts, such
// as those of an objective while its history is still being counted.
func (t Track) lookForBurn(burn *dispatcher.ObjectiveBurn, now time.Time) (Track, *Observation) {
	t.LookAt = now.Add(lookSoon)
	if burn == nil || now.Sub(burn.To) > countsOld {
		return t, nil
	}
	if next := burn.To.Add(countedAfter); next.After(t.LookAt) {
		t.LookAt = next
	}
	switch {
	case burn.Burns && !t.Firing:
		return t, &Observation{Met: 1, At: burn.To, Error: burn.Why}
	case burn.Burns:
		t.Error = burn.Why
	case t.Firing && !burn.Unsure:
		return t, &Observation{At: burn.To}
	}
	return t, nil
}

// lookForBlocker fires while a run blocks the job.
func (t Track) lookForBlocker(facts Facts, now time.Time) (Track, *Observation) {
	t.LookAt = now.Add(lookSoon)
	switch blocked := !facts.Blocked.Since.IsZero(); {
	case blocked && !t.Firing:
		return t, &Observation{Met: 1, At: facts.Blocked.Since, Run: facts.Blocked.String(), ScheduledAt: facts.Blocked.ScheduledAt,
			LateBy: now.Sub(facts.Blocked.Since), Error: facts.Blocked.Why}
	case blocked:
		t.Run, t.Error = facts.Blocked.String(), facts.Blocked.Why
	case t.Firing:
		return t, &Observation{At: now, Run: t.Run}
	case !t.KeptBack():
		t.LookAt = time.Time{}
	}
	return t, nil
}
