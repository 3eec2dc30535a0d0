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
	StartedAt time.Time // of the latest attempt; zero without one
	EndedAt   time.Time // or the time of the decision
	// OwedFrom is since when the run could begin, if a pause or a change kept it from beginning in time; else zero.
	OwedFrom time.Time
	// Missed is how many fires were missed; 0 if a run ended.
	Missed int
}

// Facts are the input for checking a condition at some time.
type Facts struct {
	// Watched is true if fires of the job are expected: the job and its app are enabled, and the job is not paused.
	Watched bool
	// Held is true if the job has triggers, and each is disabled or paused.
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
	// Late is the earliest fire that has not begun, and LateSince is since when it could begin; zero if there is none.
	Late      run.Key
	LateSince time.Time
	// Oldest is the run with the longest attempt under way, since OldestSince; zero if there is none.
	Oldest      run.Key
	OldestSince time.Time
	// Burn is the state of the job's error budget; nil if the job has no objective, or no fires are counted yet.
	Burn *dispatcher.ObjectiveBurn
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
	seen := Observation{At: end.EndedAt, Trigger: end.Trigger, ScheduledAt: end.ScheduledAt}
	if end.Missed == 0 {
		seen.Run = end.Key.String()
	}
	if t.Condition == target.AlertFailure || end.Missed > 0 { // an error says nothing about another condition
		seen.Class, seen.Error, seen.Attempt = end.Class, end.Error, end.Attempt
	}
	failed := end.State == run.Failed || end.State == run.TimedOut || end.State == run.Lost
	relevant := false
	switch t.Condition {
	case target.AlertFailure:
		relevant = failed || end.State == run.Succeeded
		seen.Met = count(failed)
	case target.AlertMissed:
		relevant = end.Missed > 0 || end.Kind == run.KindSchedule
		seen.Met = end.Missed
	case target.AlertLate:
		if t.Waits { // another fire that begins in time does not end it
			if seen.Run == t.Run {
				t.LookAt = now
			}
			return t, nil
		}
		relevant = end.Missed == 0 && end.Kind == run.KindSchedule && !end.StartedAt.IsZero()
		if seen.LateBy = end.StartedAt.Sub(input.Later(end.ScheduledAt, end.OwedFrom)); seen.LateBy <= alert.LateAfter.Std() {
			seen.LateBy = 0
		}
		seen.Met = count(seen.LateBy > 0)
	case target.AlertNoSuccess:
		if relevant = end.State == run.Succeeded; relevant && end.EndedAt.After(t.MeasuredFrom) {
			t.MeasuredFrom = end.EndedAt
			t.LookAt = end.EndedAt.Add(alert.NoSuccessFor.Std())
		}
	case target.AlertOverrun:
		if t.Firing {
			t.LookAt = now // another run may take too long, too
		}
	}
	if !relevant || seen.Met == 0 && !t.Armed() {
		return t, nil
	}
	t, made := t.Observe(rule, seen, now)
	return t.scheduled(now), made
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
	case t.Condition == target.AlertFailure && t.Firing && (t.LookAt.IsZero() || t.LookAt.After(now.Add(lookLater))):
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
	case target.AlertNoSuccess:
		t, seen = t.lookForSuccess(alert.NoSuccessFor.Std(), facts, now)
	case target.AlertLate:
		t, seen = t.lookForLate(alert.LateAfter.Std(), facts, now)
	case target.AlertOverrun:
		t, seen = t.lookForOverrun(alert.OverrunAfter.Std(), facts, now)
	case target.AlertObjective:
		t, seen = t.lookForBurn(facts.Burn, now)
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

func (t Track) lookForSuccess(most time.Duration, facts Facts, now time.Time) (Track, *Observation) {
	from := t.MeasuredFrom
	for _, later := range []time.Time{facts.ChangedAt, facts.LastSuccess} {
		if later.After(from) {
			from = later
		}
	}
	if facts.Watched && !t.Firing && now.Sub(from) >= most {
		from = facts.expectedFrom(from, most)
	}
	switch {
	case t.Firing && facts.LastSuccess.After(t.Since):
		t.MeasuredFrom, t.LookAt = facts.LastSuccess, facts.LastSuccess.Add(most)
		return t, &Observation{At: facts.LastSuccess}
	case t.Firing:
		t.LookAt = now.Add(lookLater)
		return t, nil
	case !facts.Watched:
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
// fire, as if the one before had succeeded.
func (f Facts) expectedFrom(from time.Time, most time.Duration) time.Time {
	if f.Next == nil {
		return from
	}
	first, ok := f.Next(from.Add(-time.Millisecond)) // from may be a scheduled time, as this returns it
	if !ok || first.Sub(from) <= most {
		return from
	}
	if second, ok := f.Next(first); ok && second.Sub(first) <= most {
		return first.Add(first.Sub(second))
	}
	return first
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
	waited, by := t.Waits, now.Sub(facts.LateSince)
	if t.Waits = !facts.LateSince.IsZero() && by > most; !t.Waits {
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
	if t.Firing {
		t.Run = facts.Late.String()
		return t, nil
	}
	return t, &Observation{Met: 1, At: facts.LateSince.Add(most), Run: facts.Late.String(), ScheduledAt: facts.Late.ScheduledAt, LateBy: by}
}

func (t Track) lookForOverrun(most time.Duration, facts Facts, now time.Time) (Track, *Observation) {
	since := facts.OldestSince
	switch took := now.Sub(since); {
	case since.IsZero():
		t.LookAt = now.Add(most) // runs that begin from now on cannot take too long before
	case took <= most:
		t.LookAt = since.Add(most + time.Millisecond)
	case t.Firing:
		t.LookAt = now.Add(lookSoon)
		return t, nil
	default:
		t.LookAt = now.Add(lookSoon)
		return t, &Observation{Met: 1, At: since.Add(most), Run: facts.Oldest.String(), ScheduledAt: facts.Oldest.ScheduledAt, LateBy: took}
	}
	if t.Firing {
		return t, &Observation{At: now}
	}
	return t, nil
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
	case t.Firing && !burn.Burns && !burn.Unsure:
		return t, &Observation{At: burn.To}
	}
	return t, nil
}
