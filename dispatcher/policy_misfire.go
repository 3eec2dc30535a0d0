package dispatcher

import (
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// MisfirePolicy says what happens to fires that are later than Trigger.MisfireAfter.
type MisfirePolicy string

// The policies for misfires. A fire that is less late still runs.
const (
	FireOnce MisfirePolicy = "fire_once" // one catch-up run stands for all of them
	FireAll  MisfirePolicy = "fire_all"  // each of them runs, the latest MostCaughtUp at most
	Skip     MisfirePolicy = "skip"      // none of them runs
)

// MaxCatchUpWindow is the longest that Trigger.CatchUpWindow can be, and its default.
const MaxCatchUpWindow = input.Duration(365 * 24 * time.Hour)

// MostCaughtUp is how many missed fires of a trigger fire_all runs: the latest. Earlier ones are
// skipped.
const MostCaughtUp = 1000

// checkMisfires adds what is wrong with how t treats missed fires.
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
	// From and To are the first and last missed instants, both inclusive; Count is how many.
	From time.Time `json:"from"`
	// The last missed scheduled time.
	To time.Time `json:"to"`
	// Number of missed fires; 10000 means at least that many.
	Count int `json:"count"`
	// Decision is what was decided, Reason why.
	Decision Decision `json:"decision" schema:"enum=fire_once|skip"`
	Reason   string   `json:"reason"`
	// Run is the id of the catch-up run, empty if there is none.
	Run string `json:"run,omitempty" schema:"RunID"`
	// RunDueAt is when that run is due, if a change of the definition decided; it is not stored.
	RunDueAt time.Time `json:"-"`
	// Node is the node that decided; nil if a change of the definition did.
	Node      *run.NodeID `json:"node,omitempty"`
	DecidedAt time.Time   `json:"decided_at"`
}

// Cursor returns the cursor of the page of misfires that follows m.
func (m Misfire) Cursor() string {
	return run.Key{TriggerID: m.TriggerID, ScheduledAt: m.From, Kind: run.KindCatchUp}.String()
}

// Decision is what happened to missed fires.
type Decision string

// The decisions.
const (
	DecisionFireOnce Decision = "fire_once" // one catch-up run for all of them
	DecisionSkip     Decision = "skip"      // none of them runs
	// DecisionFireAll runs a fire late, as itself: its run explains it, so no stored Misfire has this
	// decision.
	DecisionFireAll Decision = "fire_all"
)

// MostMissed bounds how many missed fires are counted, which takes milliseconds; a Misfire with this
// count stands for at least as many. If counting takes more than missedSteps, it ends earlier.
const (
	MostMissed  = 10_000
	missedSteps = 40 * schedule.StepsPerSearch
)

// Missed returns the last of the instants of s in [from, now], from being one of them, how
// many they are, MostMissed at most, and the first instant after now, nil if there is none. The error
// is that of a schedule that cannot be evaluated within bounds.
func Missed(s *schedule.Schedule, from, now time.Time) (last time.Time, count int, next *time.Time, err error) {
	last, count, next, _, err = missedFires(newMissedBudget(), s, from, now)
	return last, count, next, err
}

func newMissedBudget() *schedule.Budget { return schedule.NewSteps(missedSteps) }

// missedFires is Missed within a budget, and reports whether count is exact.
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

// latest returns the last instant of s in (after, now], of which there is one at least. What
// follows an instant is due by now for every instant before the last, and for none from it
// on, so halving the range finds it.
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

// MissedButLatest is Missed for all but the latest keep of the instants of s in [from,
// now], and next is then the first of these. count is 0 if there are no more than keep.
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
	// After last there are keep at most, and a millisecond before it there is one more.
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

// atMost tells whether s has no more than so many instants in (after, now].
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
