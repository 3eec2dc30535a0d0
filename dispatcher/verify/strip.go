package verify

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// Strip returns the latest and the next scheduled times of a trigger, each with what Explain says of it. It asks the
// store for all of them at once: for the history of definitions, the misfire decisions and the runs; and once more for each
// revision of calendars among them. The error is ErrNotFound if the trigger has no history.
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
	past := times.latest()
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

// fit puts cells in order, each once, and leaves out what is more than asked for.
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
}

func (g gathered) find(_ context.Context, key run.Key) (*run.Run, error) {
	return g.runs[key.String()], nil
}

func (g gathered) missed(_ context.Context, at time.Time) (*dispatcher.Misfire, error) {
	i := slices.IndexFunc(g.misfires, func(m dispatcher.Misfire) bool { return !at.Before(m.From) && !at.After(m.To) })
	if i < 0 {
		return nil, nil
	}
	return &g.misfires[i], nil
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
	slices.SortFunc(keys, func(a, b run.Key) int {
		if c := a.ScheduledAt.Compare(b.ScheduledAt); c != 0 {
			return c
		}
		return a.Code() - b.Code()
	})
	runs, err := reader.RunsAt(ctx, slices.Compact(keys))
	if err != nil {
		return err
	}
	found := gathered{map[string]*run.Run{}, misfires}
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

// cellKinds are the kinds of cell by verdict.
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
	if r.StartedAt != nil {
		cell.Late = input.Duration(r.StartedAt.Sub(r.ScheduledAt))
		if r.EndedAt != nil {
			cell.Took = input.Duration(r.EndedAt.Sub(*r.StartedAt))
		}
	}
	return cell, nil
}

// isUnreadable says that a revision cannot be evaluated by this version of the program, or not in bounded time.
func isUnreadable(err error) bool {
	var unreadable *dispatcher.UnreadableError
	var costly input.Problems
	return errors.As(err, &unreadable) || errors.As(err, &costly)
}
