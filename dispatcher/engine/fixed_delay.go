package engine

import (
	"context"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
)

// delays are the triggers with a fixed delay whose runs end on this node. Their next fires count from
// those ends, so the claim cannot write them. This is only the quick way: the adopt loop finds in the
// database the triggers whose run ended otherwise (cancelled, or recorded by a node that then died).
type delays struct {
	mu       sync.Mutex
	expected map[int64]bool // triggers whose outcome is about to be recorded
	ended    *pile[int64]
}

func newDelays() *delays {
	return &delays{expected: map[int64]bool{}, ended: newPile[int64]()}
}

// expect notes that the outcome of a run of a fixed delay will be recorded.
func (d *delays) expect(trigger int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.expected[trigger] = true
}

// recorded notes the records of fixed delays.
func (d *delays) recorded(records []dispatcher.Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.expected) == 0 {
		return
	}
	for _, r := range records {
		if d.expected[r.TriggerID] {
			delete(d.expected, r.TriggerID)
			d.ended.add(r.TriggerID)
		}
	}
}

// delayLoop schedules the next fire of fixed delays as soon as their runs are recorded.
func (e *Engine) delayLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.delays.ended.wake:
		}
		if ended := e.delays.ended.take(); len(ended) > 0 {
			failpoint.Hit(failpoint.BeforeScheduleNext)
			e.logIf(ctx, "schedule fixed delays", e.scheduleNext(ctx, ended, e.clock.now()))
		}
	}
}

// scheduleNext gives fixed delays whose latest run has ended their next fire: those among ids or,
// without ids, any, a page at most.
func (e *Engine) scheduleNext(ctx context.Context, ids []int64, now time.Time) error {
	ended, err := e.store.EndedDelays(ctx, ids, pageSize)
	if err != nil || len(ended) == 0 {
		return err
	}
	byID := make(map[int64]dispatcher.EndedDelay, len(ended))
	all := make([]candidate, len(ended))
	for i, trigger := range ended {
		byID[trigger.DueTrigger.ID] = trigger
		all[i] = candidate{DueTrigger: trigger.DueTrigger, version: trigger.TriggerVersion}
	}
	entries, err := e.prepare(ctx, all, false) // their schedules are anchored at the ends of these runs
	if err != nil {
		return err
	}
	delayed := make([]dispatcher.DelayedFire, 0, len(entries))
	for i := range entries {
		next := &entries[i]
		if err := dispatcher.WithoutPanic(func() error { return next.scheduleAfter(byID[next.ID]) }); err != nil {
			e.quarantine(ctx, next.DueTrigger, err)
			continue
		}
		delayed = append(delayed, dispatcher.DelayedFire{
			TriggerID: next.ID, Revision: next.Revision, CalendarRevision: next.CalendarRevision,
			Prev: next.PrevFireTime, Anchor: byID[next.ID].EndedAt, Next: next.NextFireTime, Due: next.DueAt,
		})
	}
	if err := e.store.ScheduleNext(ctx, delayed); err != nil {
		return err
	}
	for _, next := range entries {
		// The node that is preferred for the trigger may poll too late for it.
		if !next.NextFireTime.IsZero() && next.DueAt.Before(now.Add(e.opts.Window)) {
			e.timeline.add(next)
		}
	}
	return nil
}

// scheduleAfter sets the fire that follows the end of a run, none if all runs are used up.
func (e *entry) scheduleAfter(ended dispatcher.EndedDelay) error {
	if count := ended.Spec.RepeatCount; count > 0 && ended.Fired+1 >= count {
		return nil
	}
	next, ok, err := e.schedule.Find(ended.EndedAt)
	if ok {
		e.NextFireTime, e.DueAt = next, next.Add(e.schedule.Delay(next))
	}
	return err
}
