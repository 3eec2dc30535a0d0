package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// pageSize bounds one read of the poll and of the handler.
const pageSize = 5000

// pollLoop reads the window at each interval, and at once when a notification says that something
// changed.
func (e *Engine) pollLoop(ctx context.Context) {
	next := time.Now() // when a poll should begin at the latest
	e.every(ctx, "poll", e.opts.Window, e.wakePoll, func(ctx context.Context, now time.Time) error {
		begun := time.Now()
		late := max(0, begun.Sub(next))
		// A fifth of slack covers a poll that begins late.
		n, err := e.pollOnce(ctx, now, now.Add(e.opts.Window+e.opts.Window/5))
		took := time.Since(begun)
		e.metrics.polled(took, late)
		e.log.DebugContext(ctx, "window polled", "fires", n, "took", took)
		if took > e.opts.Window || late > e.opts.Window/5 {
			e.log.WarnContext(ctx, "poll overruns its window; fires may be late",
				"node", e.fleet.id().String(), "took", took.String(), "late", late.String(), "fires", n)
		}
		next = begun.Add(e.opts.Window)
		return err
	})
}

// pollOnce plans the fires of the node's share that are due by until. It returns how many.
func (e *Engine) pollOnce(ctx context.Context, now, until time.Time) (int, error) {
	failpoint.Hit(failpoint.BeforePoll)
	if err := e.readLabelSets(ctx, now); err != nil {
		return 0, err
	}
	shares, version := e.fleet.shares(e.opts.Apps, e.labelSets.get())
	look := e.floors.window.begin(now, version, e.floors.left())
	query := dispatcher.DueQuery{From: look.from, Until: until, Now: now}
	seen, err := e.plan(ctx, query, shares, e.fleet.fires)
	if err != nil {
		return seen.planned, err
	}
	e.overdue.polled(seen.oldest, now)
	if seen.complete {
		e.floors.window.end(look, seen.least, now.Add(-e.opts.Window))
	}
	return seen.planned, nil
}

const (
	// nearSweep is how many nodes before this one a sweep covers where nodes are not alike, and turnSweep where they
	// take turns.
	nearSweep = 3
	turnSweep = 10
	// farSweep is after how many sweeps one covers all nodes.
	farSweep = 10
)

// sweepLoop plans, after the grace, the fires that the nodes before this one left alone. So that a large fleet does
// not ask the same questions a hundred times a second, nodes that are alike take turns: each second every
// trigger is swept by one node that is not its own. Otherwise the next in rank goes first, and so on, because nodes
// that contend lose most of what they try. A node that is late with its own fires takes none: if the whole fleet is
// late, helping would make it later. The loop also wakes the poll when own fires were lost.
func (e *Engine) sweepLoop(ctx context.Context) {
	round := 0
	e.every(ctx, "sweep", e.opts.Grace, nil, func(ctx context.Context, now time.Time) error {
		// Not at each loss: where nodes contend, that would be one poll after the other.
		if e.lostFires.Swap(false) {
			wake(e.wakePoll)
		}
		if e.fleet.alone() || e.timeline.overdue(now.Add(-e.opts.Lead)) {
			e.overdue.swept(time.Time{}, now)
			return nil
		}
		round++
		if round%farSweep == 0 {
			if mine, _ := e.fleet.turn(now, farSweep*e.opts.Grace, 0, turnSweep); mine || e.overdue.sawOthers() {
				return e.sweepAll(ctx, now)
			}
		}
		return e.sweepNear(ctx, now)
	})
}

// sweepNear plans fires that the nodes shortly before this one left alone, if it is this node's turn.
func (e *Engine) sweepNear(ctx context.Context, now time.Time) error {
	mine, reach := e.fleet.turn(now, e.opts.Grace, nearSweep, turnSweep)
	if !mine {
		return nil
	}
	shares, version := e.fleet.neighbours(e.opts.Apps, e.labelSets.get(), reach)
	ranked := !e.fleet.alike() // or nobody else covers them now
	_, err := e.sweep(ctx, now, &e.floors.near, shares, version, func(d dispatcher.DueTrigger) bool {
		return !ranked || e.ranked(d, now)
	})
	return err
}

// sweepAll plans fires that any nodes left alone. A fire whose job requires a set of labels that the nodes did not
// know yet is found by it, too.
func (e *Engine) sweepAll(ctx context.Context, now time.Time) error {
	found, err := e.sweep(ctx, now, &e.floors.far, everything(e.opts.Apps), 0, func(d dispatcher.DueTrigger) bool {
		return e.ranked(d, now)
	})
	if err == nil {
		e.overdue.swept(found.oldest, now)
	}
	return err
}

// ranked reports whether a fire has been due for so long that all nodes which come before this one had their time.
func (e *Engine) ranked(d dispatcher.DueTrigger, now time.Time) bool {
	return now.Sub(d.DueAt) >= time.Duration(e.fleet.rank(d))*e.opts.Grace
}

// sweep plans the fires in shares that are wanted and due for longer than the grace.
func (e *Engine) sweep(
	ctx context.Context, now time.Time, floor *floor, shares []share, version int, wanted func(dispatcher.DueTrigger) bool,
) (seen, error) {
	// What is older is left to the sweeps of all, and to the nodes whose shares these are.
	look := floor.begin(now, version, cmp.Or(e.floors.left(), now.Add(-lookBack)))
	query := dispatcher.DueQuery{From: look.from, Until: now.Add(-e.opts.Grace), Now: now}
	found, err := e.plan(ctx, query, shares, wanted)
	if err == nil && found.complete {
		floor.end(look, found.least, query.Until.Add(-e.opts.Grace))
	}
	return found, err
}

// seen is what a reading of due triggers found.
type seen struct {
	planned  int
	least    time.Time // the earliest time at which one of them was due, in whichever share; zero: there is none
	oldest   time.Time // the same of those whose labels this node has
	complete bool      // nothing was left out
}

func (s *seen) page(page []dispatcher.DueTrigger, labels input.Labels) {
	for i := range page {
		due := page[i].DueAt
		if s.least.IsZero() || due.Before(s.least) {
			s.least = due
		}
		if labels.Have(page[i].NodeLabels) {
			if s.oldest.IsZero() || due.Before(s.oldest) {
				s.oldest = due
			}
			return // the page is in order
		}
	}
}

// plan plans the fires that query selects in shares, of triggers that are wanted and jobs that require no label
// which the node lacks.
func (e *Engine) plan(
	ctx context.Context, query dispatcher.DueQuery, shares []share, wanted func(dispatcher.DueTrigger) bool,
) (found seen, err error) {
	defer e.timeline.reading()()
	for _, one := range shares {
		query.Apps, query.LabelSets, query.IDFrom, query.IDTo = one.apps, one.labels, one.from, one.to
		if more, err := e.planShare(ctx, query, wanted, &found); err != nil || !more {
			return found, err
		}
	}
	found.complete = true
	return found, nil
}

// planPage plans a page of fires: those that are due soon, and some more, in the timeline, and the others ahead of
// it. It returns false if there is no room.
func (e *Engine) planPage(ctx context.Context, page []dispatcher.DueTrigger, now time.Time, found *seen) (bool, error) {
	later := page[min(len(page), max(mostAtOnce-found.planned, 0)):]
	for len(later) > 0 && !later[0].DueAt.After(now.Add(soon)) && !e.timeline.isFull() {
		later = later[1:]
	}
	due, err := e.evaluate(ctx, page[:len(page)-len(later)])
	if err != nil {
		return false, err
	}
	for _, d := range due {
		if !e.timeline.add(d) && !e.ahead.add(d.DueTrigger) {
			return false, nil
		}
		found.planned++
	}
	for _, d := range later {
		if !e.ahead.add(d) {
			return false, nil
		}
		found.planned++
	}
	return true, nil
}

// planShare plans one share. It returns false if the node may not fire, or there is no room.
func (e *Engine) planShare(
	ctx context.Context, query dispatcher.DueQuery, wanted func(dispatcher.DueTrigger) bool, found *seen,
) (bool, error) {
	query.Limit = pageSize
	for e.fleet.active() {
		turned(ctx)
		page, err := e.store.Due(ctx, query)
		if err != nil {
			return false, err
		}
		if len(page) == 0 {
			return true, nil
		}
		found.page(page, e.opts.Labels)
		last, more := page[len(page)-1], len(page) == query.Limit
		page = slices.DeleteFunc(page, func(d dispatcher.DueTrigger) bool {
			return !e.opts.Labels.Have(d.NodeLabels) || !wanted(d) || e.timeline.has(&d) || e.ahead.has(&d)
		})
		if complete, err := e.planPage(ctx, page, query.Now, found); err != nil || !complete {
			return false, err
		}
		if !more {
			return true, nil
		}
		query.AfterTime, query.AfterID = last.DueAt, last.ID
	}
	return false, nil
}
