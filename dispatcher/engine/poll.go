package engine

import (
	"context"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// pageSize bounds one read of the poll and of the handler.
const pageSize = 1000

// pollLoop reads the window at each beat, and at once when a hint says that something changed.
func (e *Engine) pollLoop(ctx context.Context) {
	e.every(ctx, "poll", e.opts.Window, e.wakePoll, func(ctx context.Context, now time.Time) error {
		e.jobs.turn()
		// A fifth of slack covers a beat that comes late.
		n, err := e.pollOnce(ctx, now, now.Add(e.opts.Window+e.opts.Window/5), e.fleet.prefers)
		e.log.DebugContext(ctx, "window polled", "fires", n)
		return err
	})
}

// sweepLoop takes, after the grace, what the preferred node left alone.
func (e *Engine) sweepLoop(ctx context.Context) {
	e.every(ctx, "sweep", e.opts.Grace, nil, func(ctx context.Context, now time.Time) error {
		if e.fleet.alone() {
			return nil
		}
		_, err := e.pollOnce(ctx, now, now.Add(-e.opts.Grace), func(int64) bool { return true })
		return err
	})
}

// pollOnce plans the fires due by until whose triggers are wanted, and returns how many.
func (e *Engine) pollOnce(ctx context.Context, now, until time.Time, wanted func(trigger int64) bool) (int, error) {
	planned := 0
	query := dispatcher.DueQuery{Apps: e.opts.Apps, Until: until, Now: now, Limit: pageSize}
	for e.fleet.active() {
		page, err := e.store.Due(ctx, query)
		if err != nil || len(page) == 0 {
			return planned, err
		}
		last, more := page[len(page)-1], len(page) == query.Limit
		page = slices.DeleteFunc(page, func(d dispatcher.DueTrigger) bool { return !wanted(d.ID) })
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
		query.AfterTime, query.AfterID = last.NextFireTime, last.ID
	}
	return planned, nil
}

// evaluate parses the schedules of triggers and reads their jobs. What cannot be evaluated
// is quarantined and does not stop the rest.
func (e *Engine) evaluate(ctx context.Context, triggers []dispatcher.DueTrigger) ([]entry, error) {
	needed := make(map[int64]int64, len(triggers))
	for _, trigger := range triggers {
		needed[trigger.JobID] = trigger.Revision
	}
	if err := e.jobs.load(ctx, needed); err != nil {
		return nil, err
	}
	due := make([]entry, 0, len(triggers))
	for _, trigger := range triggers {
		if d, ok := e.jobs.get(trigger.JobID, trigger.Revision); ok && d.Err != nil {
			e.quarantine(ctx, trigger, d.Err)
			continue
		}
		s, err := e.schedules.Parse(trigger.Spec)
		if err != nil {
			e.quarantine(ctx, trigger, err)
			continue
		}
		due = append(due, entry{DueTrigger: trigger, schedule: s})
	}
	return due, nil
}

// quarantine takes a trigger that cannot be evaluated out of the loop, with the reason.
func (e *Engine) quarantine(ctx context.Context, trigger dispatcher.DueTrigger, reason error) {
	e.log.WarnContext(ctx, "trigger cannot be evaluated", "trigger_id", trigger.ID, "err", reason)
	e.logIf(ctx, "quarantine trigger", e.store.Quarantine(ctx, trigger.ID, trigger.Revision, reason.Error()))
}

// listenLoop turns notifications into wake-ups. They are hints: when they fail, the poll
// still finds everything, later.
func (e *Engine) listenLoop(ctx context.Context) {
	e.every(ctx, "listen", time.Second, nil, func(ctx context.Context, _ time.Time) error {
		return e.store.Listen(ctx, func(hint dispatcher.Hint) {
			if run, err := dispatcher.ParseRunKey(hint.Run); err == nil {
				e.pool.cancel(run)
				return
			}
			wake(e.wakePoll)
			wake(e.wakeAdopt)
		})
	})
}
