package engine

import (
	"context"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
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
		e.jobs.dropUnused()
		// A fifth of slack covers a poll that begins late.
		n, err := e.pollOnce(ctx, now, now.Add(e.opts.Window+e.opts.Window/5), e.fleet.prefers)
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

// sweepLoop plans, after the grace, the fires that their preferred node left alone. The next in rank
// goes first, and so on, because nodes that contend lose most of what they try. A node that is late
// with its own fires takes none: if the whole fleet is late, helping would make it later. The loop
// also wakes the poll when own fires were lost.
func (e *Engine) sweepLoop(ctx context.Context) {
	e.every(ctx, "sweep", e.opts.Grace, nil, func(ctx context.Context, now time.Time) error {
		// Not at each loss: where nodes contend, that would be one poll after the other.
		lost := e.lostFires.Swap(false)
		if lost {
			wake(e.wakePoll)
		}
		if e.fleet.alone() || e.timeline.overdue(now.Add(-e.opts.Lead)) {
			return nil
		}
		_, err := e.pollOnce(ctx, now, now.Add(-e.opts.Grace), func(d dispatcher.DueTrigger) bool {
			return now.Sub(d.DueAt) >= time.Duration(e.fleet.rank(d))*e.opts.Grace
		})
		return err
	})
}

// pollOnce plans the fires due by until, of triggers that are wanted and jobs that require no label
// that the node lacks. It returns how many.
func (e *Engine) pollOnce(ctx context.Context, now, until time.Time, wanted func(dispatcher.DueTrigger) bool) (int, error) {
	failpoint.Hit(failpoint.BeforePoll)
	defer e.timeline.reading()()
	planned, oldest := 0, time.Time{}
	query := dispatcher.DueQuery{Apps: e.opts.Apps, Until: until, Now: now, Limit: pageSize}
	for e.fleet.active() {
		turned(ctx)
		page, err := e.store.Due(ctx, query)
		if err != nil {
			return planned, err
		}
		if oldest.IsZero() {
			oldest = e.oldestServed(page)
			e.overdue.polled(oldest, now)
		}
		if len(page) == 0 {
			return planned, nil
		}
		last, more := page[len(page)-1], len(page) == query.Limit
		page = slices.DeleteFunc(page, func(d dispatcher.DueTrigger) bool {
			return !e.opts.Labels.Have(d.NodeLabels) || !wanted(d)
		})
		due, err := e.evaluate(ctx, page)
		if err != nil {
			return planned, err
		}
		for _, d := range due {
			if !e.timeline.add(d) {
				return planned, nil
			}
			planned++
		}
		if !more {
			return planned, nil
		}
		query.AfterTime, query.AfterID = last.DueAt, last.ID
	}
	return planned, nil
}

// listenLoop turns notifications into wake-ups. If they fail, the poll still finds everything, later.
func (e *Engine) listenLoop(ctx context.Context) {
	e.every(ctx, "listen", time.Second, nil, func(ctx context.Context, _ time.Time) error {
		rests(ctx)
		return e.store.Listen(ctx, func(notification dispatcher.Notification) {
			if run, err := dispatcher.ParseRunKey(notification.Run); err == nil {
				e.pool.Cancel(run)
				return
			}
			if !notification.Adopt {
				wake(e.wakePoll)
			}
			wake(e.wakeAdopt)
		})
	})
}
