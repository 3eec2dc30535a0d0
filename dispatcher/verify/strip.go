package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// Strip returns the latest and the next scheduled times of a trigger, each with its explanation from Explain. It
// reads the store once for all of them: the history of definitions, the misfire decisions and the runs; and once more
// for each revision of calendars among them. The error is ErrNotFound if the trigger has no history.
func Strip(ctx context.Context, reader Reader, query view.StripQuery) (view.Strip, error) {
	strip := view.Strip{App: query.App, Job: query.Job, Trigger: query.Trigger, Cells: []view.StripCell{}}
	of, err := readHistory(ctx, reader, ExplainQuery{App: query.App, Job: query.Job, Trigger: query.Trigger, Now: query.Now},
		time.Time{}, time.Time{})
	if err != nil {
		return strip, err
	}
	strip.Now = of.app.Now
	strip.Timezone = of.history.Revisions[len(of.history.Revisions)-1].Timezone
	times := candidates{explained: &of, budget: schedule.NewBudget(ctx, stripSteps), wanted: query.Past}
	if err := times.lookBack(ctx); err != nil {
		return strip, err
	}
	strip.Incomplete = times.incomplete
	if err := times.addLedger(ctx, reader); err != nil {
		return strip, err
	}
	past := inOrder(times.past)
	past = past[max(len(past)-times.wanted, 0):]
	next, err := times.lookAhead(ctx, query.Next)
	if err != nil {
		return strip, err
	}
	all := append(past, next...)
	if err := of.gather(ctx, reader, times.misfires, all); err != nil {
		return strip, err
	}
	for _, one := range all {
		cells, err := of.cells(ctx, one)
		if err != nil {
			return strip, err
		}
		strip.Cells = append(strip.Cells, cells...)
	}
	strip.Cells = fit(strip.Cells, strip.Now, query)
	return strip, nil
}

// fit puts cells in order, each once, and leaves out those that were not requested.
func fit(cells []view.StripCell, now time.Time, query view.StripQuery) []view.StripCell {
	slices.SortStableFunc(cells, func(a, b view.StripCell) int { return a.ScheduledAt.Compare(b.ScheduledAt) })
	cells = slices.CompactFunc(cells, func(a, b view.StripCell) bool { return a.ScheduledAt.Equal(b.ScheduledAt) })
	next := slices.IndexFunc(cells, func(c view.StripCell) bool { return c.ScheduledAt.After(now) })
	if next < 0 {
		next = len(cells)
	}
	return cells[max(next-query.Past, 0):min(next+query.Next, len(cells))]
}

// gathered is the part of a ledger that concerns some times of a trigger.
type gathered struct {
	runs     map[string]*run.Run
	misfires []dispatcher.Misfire
	of       *explained
}

func (g gathered) find(_ context.Context, key run.Key) (*run.Run, error) {
	return g.runs[key.String()], nil
}

func (g gathered) missed(_ context.Context, at time.Time) (*dispatcher.Misfire, error) {
	return shortest(g.misfires, at), nil
}

func (g gathered) held(_ context.Context, m *dispatcher.Misfire) (string, error) {
	return heldReason(&g.of.history, &g.of.app, m), nil
}

// gather reads the runs at some times and the catch-up runs of misfire decisions.
func (of *explained) gather(ctx context.Context, reader Reader, misfires []dispatcher.Misfire, at []stretch) error {
	var keys []run.Key
	for _, one := range at {
		for _, t := range []time.Time{one.first, one.last} {
			keys = append(keys, run.Key{TriggerID: of.history.ID, ScheduledAt: t, Kind: run.KindSchedule})
		}
	}
	for _, m := range misfires {
		if key, err := run.ParseKey(m.Run); m.Run != "" && err == nil {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b run.Key) int { return cmp.Or(a.ScheduledAt.Compare(b.ScheduledAt), a.Code()-b.Code()) })
	runs, err := reader.RunsAt(ctx, slices.Compact(keys))
	if err != nil {
		return err
	}
	found := gathered{map[string]*run.Run{}, misfires, of}
	for i := range runs {
		found.runs[runs[i].ID] = &runs[i]
	}
	of.ledger = found
	return nil
}

// cells returns the cells of one time, or of a stretch: one for it all if its first and its last time have the same
// explanation, otherwise one for each of the two.
func (of *explained) cells(ctx context.Context, s stretch) ([]view.StripCell, error) {
	first, err := of.cell(ctx, s.first)
	if err != nil || s.last.Equal(s.first) {
		return []view.StripCell{first}, err
	}
	last, err := of.cell(ctx, s.last)
	if err != nil {
		return nil, err
	}
	nothing := first.What == view.CellExcluded || first.What == view.CellNone
	if nothing && first.What == last.What && first.Why == last.Why {
		first.Until = &s.last
		return []view.StripCell{first}, nil
	}
	return []view.StripCell{first, last}, nil
}

var cellKinds = map[Verdict]view.CellKind{
	VerdictRun: view.CellRun, VerdictMisfire: view.CellMisfire, VerdictOpen: view.CellWaiting,
	VerdictPlanned: view.CellPlanned, VerdictNone: view.CellNone, VerdictMissing: view.CellMissing,
	VerdictUnknown: view.CellUnknown,
}

func (of *explained) cell(ctx context.Context, at time.Time) (view.StripCell, error) {
	e, err := of.explain(ctx, at)
	if err != nil {
		return view.StripCell{}, err
	}
	cell := view.StripCell{ScheduledAt: at, What: cellKinds[e.Verdict], Why: e.Reason, Revision: e.Revision}
	if e.excluded && e.Verdict == VerdictNone {
		cell.What = view.CellExcluded
	}
	r := e.Run
	if e.Misfire != nil {
		cell.Decision, cell.Run, r = e.Misfire.Decision, e.Misfire.Run, e.CatchUp
	}
	if r == nil {
		return cell, nil
	}
	cell.Run, cell.State, cell.Class = r.ID, r.State, r.Class
	if e.Run != nil && r.State == run.Skipped {
		cell.What = view.CellSkipped
	}
	if began := r.Began(); began != nil {
		cell.Late = input.Duration(began.Sub(at))
	}
	if r.StartedAt != nil && r.EndedAt != nil {
		cell.Took = input.Duration(r.EndedAt.Sub(*r.StartedAt))
	}
	return cell, nil
}

// isUnreadable reports whether this version of the program cannot evaluate a revision, or not in bounded time.
func isUnreadable(err error) bool {
	var unreadable *dispatcher.UnreadableError
	var costly input.Problems
	return errors.As(err, &unreadable) || errors.As(err, &costly)
}

// Bounds of the work for one strip.
const (
	stripSteps    = 40 * schedule.StepsPerSearch // to find scheduled times, some milliseconds
	mostRevisions = 200                          // that are evaluated
	mostCalendars = 20                           // revisions of calendars that are read
	mostDecisions = 1000                         // about misfires
)

// stretch is one time, or the first and the last of several in a row that the schedule was kept from firing at.
type stretch struct{ first, last time.Time }

// candidates are the times that may have a cell.
type candidates struct {
	*explained
	budget     *schedule.Budget
	wanted     int
	past       []stretch
	scheduled  int // those of past that the schedule in force fires at
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
		c.past = append(c.past, stretch{input.Later(in.From, c.app.Since), input.Later(in.From, c.app.Since)})
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
		return c.ofSpan(ctx, s, in, input.Later(span.From, c.app.Since), last)
	}
	return nil
}

// disabled adds the times of a disabled revision as one stretch.
func (c *candidates) disabled(s *schedule.Schedule, in *dispatcher.TriggerRevision, until time.Time) {
	first, some := s.Next(input.Later(in.From, c.app.Since).Add(-time.Millisecond))
	last, ok := s.Previous(until)
	if !some || !ok || last.Before(first) {
		return
	}
	if decides, _ := c.history.At(first); decides == in {
		c.past = append(c.past, stretch{first, last})
	}
}

// ofSpan adds the times of a revision between two, both inclusive, from the last back: at most as many as are
// missing, and the times in between that the calendar or daylight saving left out.
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

// loosened returns the schedule of a revision without the rules that leave out times: the calendar, and the rule for
// local times that come twice. It is nil if the schedule counts its fires, because left out times do not count.
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

// leftOut adds the times in (after, before) that a schedule leaves out. The schedule has no time in that range.
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
