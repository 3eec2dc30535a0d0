package dispatcher

import (
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// jobSteps bounds what it costs to find the next fires of all triggers of a job to some 20 ms, because a
// transaction waits for it. A hundred triggers of real schedules take a twentieth of it.
const jobSteps = 40 * schedule.StepsPerSearch

// CheckCost returns what is wrong with a job whose schedules take too long to evaluate, as Problems, or
// nil. Anything else that is wrong with it is left to Validate and Apply.
func (j Job) CheckCost(calendars Calendars, now time.Time) error {
	var problems input.Problems
	budget := schedule.NewSteps(jobSteps)
	for _, name := range input.SortedKeys(j.Triggers) {
		t := j.Triggers[name]
		s, err := t.Parse(j.Identity(name), now, calendars)
		if err != nil {
			continue
		}
		s.ChargeRepeats(budget)
		next, ok, err := s.FindWithin(budget, now)
		if err == nil && ok {
			_, _, err = s.FindWithin(budget, next)
		}
		if err == nil {
			continue
		}
		problems.AddError(input.Pointer("triggers", name), err)
		if budget.Left() < schedule.StepsPerSearch {
			break // the others would say the same
		}
	}
	return problems.Err()
}

// StepRetries tells why a backfill or a bulk action does not go on.
type StepRetries struct {
	// Waits says why it does not go on now, such as a quota that is used up or a step that failed; empty: it does.
	Waits string `json:"waits,omitempty"`
	// Tries counts how often its next step has failed, and TryAt is when it is tried again; nil: it has not failed.
	Tries int        `json:"tries,omitempty"`
	TryAt *time.Time `json:"try_at,omitempty"`
}

// OpenSteps is a backfill or a bulk action that has not ended, and when its next step is tried again; zero: it has not failed.
type OpenSteps struct {
	ID    int64
	TryAt time.Time
}
