package schedule

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// stepBudget bounds the search for one fire. A step looks at one month, one day, one period of a zone
// or one rule of a calendar, which takes some 20 to 100 ns. Steps are counted and not timed, so that
// every node decides alike. Real schedules take fewer than a hundred, and those that move fires by
// days a few hundred: a calendar that excludes everything but one day of a leap year, under an
// hourly schedule, takes 161.
const stepBudget = 5000

// Multiples of stepBudget for work of several searches.
const (
	repeatSteps   = 8 * stepBudget // to find the last fire that RepeatCount allows
	previousSteps = 8 * stepBudget // to find a previous fire
)

// StepsPerSearch bounds the steps of the search for one fire; see Budget.
const StepsPerSearch = stepBudget

// WarningSteps bounds the steps of a search for a warning. It is lower, because a list shows the warnings of many
// triggers.
const WarningSteps = stepBudget / 10

// Budget bounds the work of several searches together, by counted steps and by a context. It is not
// safe for concurrent use.
type Budget struct {
	ended       func() error // the error of its context, if that has ended
	total, left int
}

// NewBudget returns a budget of that many steps, which ends with ctx.
func NewBudget(ctx context.Context, steps int) *Budget {
	return &Budget{ended: func() error { return context.Cause(ctx) }, total: steps, left: steps}
}

// NewSteps returns a budget of that many steps, for work that is too short to be cancelled.
func NewSteps(steps int) *Budget {
	return &Budget{ended: func() error { return nil }, total: steps, left: steps}
}

// Left returns how many steps are left.
func (b *Budget) Left() int { return b.left }

// Used returns how many steps have been taken.
func (b *Budget) Used() int { return b.total - b.left }

// exhausted reports that one search took too many steps; reached is how far it came.
func (s *Schedule) exhausted(after, reached int64) error {
	instant := func(ms int64) string {
		return time.UnixMilli(min(max(ms, firstInstant), lastInstant)).UTC().Format(time.RFC3339)
	}
	field, cause := "calendar", "the calendar excludes nearly all times of the schedule; check that the two go together, or "+
		"write dates as dates rather than as expressions"
	switch {
	case s.spec.Calendar == nil:
		field, cause = "expression", "give end_at instead of repeat_count, or a schedule that fires more often"
	case s.spec.OnExcluded.MovesByDays():
		cause = fmt.Sprintf("on_excluded = %q moves a fire to a day on which the calendar allows its time of day, and finds none; let "+
			"the calendar exclude whole days, or use next_included or skip", s.spec.OnExcluded)
	}
	return asError(input.Problems{{Path: "/" + field, Code: input.CodeCalendarCost, Message: fmt.Sprintf(
		"%s: no fire was found in %d steps, between %s and %s: %s", field, stepBudget, instant(after), instant(reached), cause)}})
}

// spent reports that several searches together took too many steps.
func (s *Schedule) spent(b *Budget) error {
	field := "calendar"
	if s.spec.Calendar == nil {
		field = "expression"
	}
	return asError(input.Problems{{Path: "/" + field, Code: input.CodeCalendarCost, Message: fmt.Sprintf(
		"%s: evaluating the schedules takes more than %d steps in all; ask for fewer fire times, use fewer triggers or a simpler calendar",
		field, b.total)}})
}

// Find is Next with an error, input.Problems with input.CodeCalendarCost, if the next fire is not found within
// StepsPerSearch steps. Without an error, ok is false only if the schedule never fires again.
func (s *Schedule) Find(t time.Time) (next time.Time, ok bool, err error) {
	after := floorMilli(t)
	at, left, ok := s.find(after, stepBudget)
	switch {
	case ok:
		return time.UnixMilli(at).UTC(), true, nil
	case left < 0:
		return time.Time{}, false, s.exhausted(after, at)
	}
	return time.Time{}, false, nil
}

// FindWithin is Find within a budget. The error is input.Problems, or that of the budget's context.
func (s *Schedule) FindWithin(b *Budget, t time.Time) (next time.Time, ok bool, err error) {
	if err := b.ended(); err != nil {
		return time.Time{}, false, err
	}
	after, steps := floorMilli(t), min(stepBudget, b.left)
	at, left, ok := s.find(after, steps)
	b.left -= steps - left
	switch {
	case ok:
		return time.UnixMilli(at).UTC(), true, nil
	case left >= 0:
		return time.Time{}, false, nil
	case steps < stepBudget:
		return time.Time{}, false, s.spent(b)
	}
	return time.Time{}, false, s.exhausted(after, at)
}

// ChargeRepeats charges a budget with the cost of finding the last fire that RepeatCount allows.
func (s *Schedule) ChargeRepeats(b *Budget) {
	if s.last != nil {
		_, _ = s.last()
		b.left -= s.repeatCost
	}
}

// CountWithin is Count within a budget.
func (s *Schedule) CountWithin(budget *Budget, a, b time.Time, limit int) (int, error) {
	if _, ok := s.fires.(interval); ok {
		return s.Count(a, b, limit), nil
	}
	n := 0
	for at := a; n < limit; n++ {
		next, ok, err := s.FindWithin(budget, at)
		if err != nil {
			return n, err
		}
		if !ok || next.After(b) {
			break
		}
		at = next
	}
	return n, nil
}

// BetweenWithin is Between within a budget.
func (s *Schedule) BetweenWithin(budget *Budget, a, b time.Time, limit int) ([]time.Time, error) {
	var out []time.Time
	for at := a; len(out) < limit; {
		next, ok, err := s.FindWithin(budget, at)
		if err != nil {
			return nil, err
		}
		if !ok || next.After(b) {
			break
		}
		out = append(out, next)
		at = next
	}
	return out, nil
}
