package verify

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// Bounds of the work for one strip.
const (
	stripSteps    = 40 * schedule.StepsPerSearch // to find scheduled times, some milliseconds
	mostRevisions = 200                          // that are evaluated
	mostCalendars = 20                           // revisions of calendars that are read
	mostDecisions = 1000                         // about misfires
)

// stretch is one time, or several in a row at which the schedule was kept from firing: the first and the last of them.
type stretch struct{ first, last time.Time }

// candidates are the times that may have a cell.
type candidates struct {
	*explained
	budget     *schedule.Budget
	wanted     int
	past       []stretch
	scheduled  int // those of past at which the schedule in force fires
	incomplete string
	misfires   []dispatcher.Misfire
}

// lookBack adds times before now, from the latest revision back, until enough are found.
func (c *candidates) lookBack(ctx context.Context) error {
	revisions := c.history.Revisions
	end, seen, calendars := c.app.Now, 0, map[int64]bool{}
	for i := len(revisions) - 1; i >= 0 && c.scheduled < c.wanted; i-- {
		in := &revisions[i]
		if in.Calendar != "" {
			calendars[in.CalendarRevision] = true
		}
		if seen++; seen > mostRevisions || len(calendars) > mostCalendars {
			c.incomplete = fmt.Sprintf("the trigger changed more than %d times since", seen-1)
			return nil
		}
		until := end
		if i+1 < len(revisions) {
			until = revisions[i+1].From
		}
		if err := c.ofRevision(ctx, i, until); err != nil {
			return err
		}
	}
	return nil
}

// ofRevision adds the times of one revision, which was in force up to a time.
func (c *candidates) ofRevision(ctx context.Context, i int, until time.Time) error {
	in := &c.history.Revisions[i]
	if in.Cause == dispatcher.CauseDelete {
		return nil
	}
	s, err := c.schedules.at(ctx, c.history.Identity, in)
	if isUnreadable(err) {
		c.past = append(c.past, stretch{latest(in.From, c.app.Since), latest(in.From, c.app.Since)})
		return nil
	}
	if err != nil {
		return err
	}
	if _, delayed := s.FixedDelay(); delayed {
		return nil // the ledger has them
	}
	if !in.Enabled {
		c.disabled(s, in, until)
		return nil
	}
	for _, span := range c.history.Spans() {
		if span.Revision != in {
			continue
		}
		last := span.Until
		if last.After(c.app.Now) {
			last = c.app.Now
		}
		return c.ofSpan(ctx, s, in, latest(span.From, c.app.Since), last)
	}
	return nil
}

// disabled adds the times of a disabled revision as one stretch.
func (c *candidates) disabled(s *schedule.Schedule, in *dispatcher.TriggerRevision, until time.Time) {
	first, some := s.Next(latest(in.From, c.app.Since).Add(-time.Millisecond))
	last, ok := s.Previous(until)
	if !some || !ok || last.Before(first) {
		return
	}
	if decides, _ := c.history.At(first); decides == in {
		c.past = append(c.past, stretch{first, last})
	}
}

// ofSpan adds the times of a revision between two, both inclusive, from the last back: at most as many as are missing, and in
// between those that the calendar or daylight saving left out.
func (c *candidates) ofSpan(
	ctx context.Context, s *schedule.Schedule, in *dispatcher.TriggerRevision, from, to time.Time,
) error {
	loose, err := c.loosened(ctx, in)
	if err != nil {
		return err
	}
	end := to.Add(time.Millisecond)
	for c.scheduled < c.wanted {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		at, ok := s.Previous(end)
		if !ok || at.Before(from) {
			c.leftOut(s, loose, from.Add(-time.Millisecond), end)
			return nil
		}
		c.leftOut(s, loose, at, end)
		// A fire that was pending when the definition changed is in two spans.
		if !slices.Contains(c.past, stretch{at, at}) {
			c.past = append(c.past, stretch{at, at})
			c.scheduled++
		}
		end = at
	}
	return nil
}

// loosened returns the schedule of a revision without what leaves out times: the calendar, and the rule for local times that
// come twice. It is nil if the schedule counts its fires, as those that are left out do not count.
func (c *candidates) loosened(ctx context.Context, in *dispatcher.TriggerRevision) (*schedule.Schedule, error) {
	if in.RepeatCount > 0 {
		return nil, nil
	}
	free := *in
	free.Calendar, free.Overlap = "", schedule.OverlapBoth
	s, err := c.schedules.past.At(ctx, c.history.Identity, &free)
	if isUnreadable(err) {
		return nil, nil
	}
	return s, err
}

// leftOut adds the times in (after, before) that a schedule leaves out, of which it has none itself.
func (c *candidates) leftOut(s, loose *schedule.Schedule, after, before time.Time) {
	c.past = append(c.past, c.between(s, loose, after, before)...)
}

func (c *candidates) between(s, loose *schedule.Schedule, after, before time.Time) (all []stretch) {
	for _, shift := range s.Shifts(after, before.Add(-time.Second)) {
		if shift.Effect == schedule.EffectSkipped && shift.At.After(after) && shift.At.Before(before) {
			all = append(all, stretch{shift.At, shift.At})
		}
	}
	if loose == nil {
		return all
	}
	first, some := loose.Next(after)
	if !some || !first.Before(before) {
		return all
	}
	last, ok := loose.Previous(before)
	if !ok || last.Before(first) {
		last = first
	}
	return append(all, stretch{first, last})
}

// addLedger adds the times that only the ledger knows: those of fixed delays, and of runs at times that the schedule in force
// does not have.
func (c *candidates) addLedger(ctx context.Context, reader Reader) error {
	if c.wanted == 0 {
		return nil
	}
	from := c.app.Since
	if c.scheduled >= c.wanted {
		from = slices.MinFunc(c.past, func(a, b stretch) int { return a.first.Compare(b.first) }).first
	}
	fires, err := reader.LatestFires(ctx, c.job, c.history.ID, from, c.app.Now, c.wanted)
	if err != nil {
		return err
	}
	for _, at := range fires {
		c.past = append(c.past, stretch{at, at})
	}
	c.misfires, err = reader.Misfires(ctx, dispatcher.RunQuery{
		App: c.query.App, Job: c.query.Job, Trigger: c.query.Trigger, From: from, Page: input.Page{Limit: mostDecisions},
	})
	for _, m := range c.misfires {
		if !m.From.Before(from) && m.From.Equal(m.To) {
			c.past = append(c.past, stretch{m.From, m.From})
		}
	}
	return err
}

// latest returns the times that are wanted, in order, each once.
func (c *candidates) latest() []stretch {
	all := inOrder(c.past)
	return all[max(len(all)-c.wanted, 0):]
}

func inOrder(all []stretch) []stretch {
	slices.SortFunc(all, func(a, b stretch) int {
		if by := a.first.Compare(b.first); by != 0 {
			return by
		}
		return b.last.Compare(a.last)
	})
	return slices.CompactFunc(all, func(a, b stretch) bool { return a.first.Equal(b.first) })
}

// lookAhead returns the next times after now.
func (c *candidates) lookAhead(ctx context.Context, wanted int) ([]stretch, error) {
	in := &c.history.Revisions[len(c.history.Revisions)-1]
	if in.Cause == dispatcher.CauseDelete || !in.Enabled || in.NextFireTime == nil || wanted == 0 || c.history.Next.IsZero() {
		return nil, nil
	}
	s, err := c.schedules.at(ctx, c.history.Identity, in)
	if isUnreadable(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if _, delayed := s.FixedDelay(); delayed {
		if !c.history.Next.After(c.app.Now) {
			return nil, nil
		}
		return []stretch{{c.history.Next, c.history.Next}}, nil
	}
	loose, err := c.loosened(ctx, in)
	if err != nil {
		return nil, err
	}
	after := c.app.Now
	times, err := s.BetweenWithin(c.budget, after, endOfTime, wanted)
	if isUnreadable(err) {
		c.incomplete = "its scheduled times take too long to evaluate"
		return nil, nil
	}
	var all []stretch
	for _, at := range times {
		all = append(append(all, c.between(s, loose, after, at)...), stretch{at, at})
		after = at
	}
	all = inOrder(all)
	return all[:min(len(all), wanted)], err
}

// endOfTime is after every fire of every schedule.
var endOfTime = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
