package dispatcher

import (
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// MisfirePolicy decides about the due fires of a trigger if one of them is later than Trigger.MisfireAfter. Otherwise each
// of them runs.
type MisfirePolicy string

// The policies for misfires.
const (
	FireOnce MisfirePolicy = "fire_once" // one catch-up run stands for all of them
	FireAll  MisfirePolicy = "fire_all"  // each of them runs, at most the latest MostCaughtUp
	Skip     MisfirePolicy = "skip"      // none of them runs
)

// MaxCatchUpWindow is the maximum of Trigger.CatchUpWindow, and its default.
const MaxCatchUpWindow = input.Duration(365 * 24 * time.Hour)

// MostCaughtUp is how many missed fires of a trigger fire_all runs. It runs the latest and skips earlier ones.
const MostCaughtUp = 1000

// checkMisfires adds the problems of how t treats missed fires.
func (t TriggerSpec) checkMisfires(problems *input.Problems) {
	if t.MisfirePolicy != "" {
		input.CheckEnum(problems, "/misfire_policy", "misfire_policy", t.MisfirePolicy, []MisfirePolicy{FireOnce, FireAll, Skip})
	}
	if t.CatchUpWindow == 0 {
		return
	}
	// A shorter window would skip every fire that counts as missed.
	t.CatchUpWindow.CheckRange(problems, "/catch_up_window", t.MisfireAfter.Std(), MaxCatchUpWindow.Std())
}

// Misfire is the recorded decision about fires that were not claimed in time.
type Misfire struct {
	App     string `json:"app"`
	Job     string `json:"job"`
	Trigger string `json:"trigger"`
	// JobID and TriggerID are the keys of the job and the trigger.
	JobID     int64 `json:"-"`
	TriggerID int64 `json:"-"`
	// From and To are the first and last missed instants, both inclusive; Count is their number.
	From time.Time `json:"from"`
	// The last missed scheduled time.
	To time.Time `json:"to"`
	// Number of missed fires; 10000 means at least that many.
	Count int `json:"count"`
	// Decision is the decision, and Reason explains it.
	Decision Decision `json:"decision" schema:"enum=fire_once|skip"`
	Reason   string   `json:"reason"`
	// Run is the id of the catch-up run; empty if there is none.
	Run string `json:"run,omitempty" schema:"RunID"`
	// RunDueAt is when that run is due, if a change of the definition made the decision; it is not stored.
	RunDueAt time.Time `json:"-"`
	// Node is the node that made the decision; nil if a change of the definition did.
	Node      *run.NodeID `json:"node,omitempty"`
	DecidedAt time.Time   `json:"decided_at"`
}

// Cursor returns the cursor of the page of misfires after m.
func (m Misfire) Cursor() string {
	return run.Key{TriggerID: m.TriggerID, ScheduledAt: m.From, Kind: run.KindCatchUp}.String()
}

// Decision is the decision about missed fires.
type Decision string

// The decisions.
const (
	DecisionFireOnce Decision = "fire_once" // one catch-up run for all of them
	DecisionSkip     Decision = "skip"      // none of them runs
	// DecisionFireAll runs a fire late, as itself: its run explains it, so no stored Misfire has this
	// decision.
	DecisionFireAll Decision = "fire_all"
)

// MostMissed bounds how many missed fires are counted, which takes milliseconds; a Misfire with this count stands for
// at least as many. Counting stops earlier if it takes more than missedSteps.
const (
	MostMissed  = 10_000
	missedSteps = 40 * schedule.StepsPerSearch
)

// Missed returns the last of the instants of s in [from, now], which include from, their number, at most MostMissed,
// and the first instant after now, nil if there is none. It returns an error if s cannot be evaluated within bounds.
func Missed(s *schedule.Schedule, from, now time.Time) (last time.Time, count int, next *time.Time, err error) {
	last, count, next, _, err = missedFires(newMissedBudget(), s, from, now)
	return last, count, next, err
}

func newMissedBudget() *schedule.Budget { return schedule.NewSteps(missedSteps) }

// missedFires is Missed within a budget; it also reports whether count is exact.
func missedFires(budget *schedule.Budget, s *schedule.Schedule, from, now time.Time) (
	last time.Time, count int, next *time.Time, exact bool, err error,
) {
	last, count = from, 1
	for {
		after, ok, err := s.FindWithin(budget, last)
		switch {
		case err != nil:
			return last, count, nil, false, err
		case !ok:
			return last, count, nil, true, nil
		case after.After(now):
			return last, count, &after, true, nil
		case count == MostMissed || budget.Left() < missedSteps/5:
			if last, err = latest(budget, s, last, now); err != nil {
				return last, count, nil, false, err
			}
			if after, ok, err = s.FindWithin(budget, now); ok {
				next = &after
			}
			return last, count, next, false, err
		}
		last = after
		count++
	}
}

// latest returns the last instant of s in (after, now], which has at least one. The next fire after a time is due by
// now if that time is before the last instant, and not from it on, so halving the range finds it.
func latest(budget *schedule.Budget, s *schedule.Schedule, after, now time.Time) (time.Time, error) {
	for now.Sub(after) > time.Millisecond {
		middle := after.Add(now.Sub(after) / 2).Truncate(time.Millisecond)
		next, ok, err := s.FindWithin(budget, middle)
		if err != nil {
			return after, err
		}
		if ok && !next.After(now) {
			after = middle
		} else {
			now = middle
		}
	}
	next, _, err := s.FindWithin(budget, after)
	return next, err
}

// MissedButLatest is Missed without the latest keep instants of s in [from, now]; next is then the first of these.
// count is 0 if there are at most keep.
func MissedButLatest(s *schedule.Schedule, from, now time.Time, keep int) (last time.Time, count int, next time.Time, err error) {
	_, all, _, exact, err := missedFires(newMissedBudget(), s, from, now)
	switch {
	case err != nil:
		return from, 0, from, err
	case exact && all <= keep:
		return from, 0, from, nil
	case exact:
		last = from
		for count = 1; count < all-keep; count++ {
			last, _ = s.Next(last)
		}
		next, _ = s.Next(last)
		return last, count, next, nil
	}
	// At most keep instants are after last, and one more is after a millisecond before it.
	before := from
	budget := schedule.NewSteps(10 * missedSteps)
	for last = now.Truncate(time.Millisecond); last.Sub(before) > time.Millisecond; {
		middle := before.Add(last.Sub(before) / 2).Truncate(time.Millisecond)
		few, err := atMost(s, budget, middle, now, keep)
		if err != nil {
			return from, 0, from, err
		}
		if few {
			last = middle
		} else {
			before = middle
		}
	}
	if _, count, _, err = Missed(s, from, last); err != nil {
		return from, 0, from, err
	}
	next, _, err = s.Find(last)
	return last, count, next, err
}

// atMost reports whether s has at most most instants in (after, now].
func atMost(s *schedule.Schedule, budget *schedule.Budget, after, now time.Time, most int) (bool, error) {
	for range most + 1 {
		next, ok, err := s.FindWithin(budget, after)
		if err != nil || !ok || next.After(now) {
			return true, err
		}
		after = next
	}
	return false, nil
}
