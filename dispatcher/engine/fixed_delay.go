package engine

import (
	"context"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
)

// delays are the triggers with a fixed delay whose runs this node ends. Their next fires
// are counted from those ends, so they cannot be written by the claim. It is only a shortcut:
// whose run ended otherwise (cancelled, or recorded by a node that died then) is found in the
// database by the adopt loop.
type delays struct {
	mu      sync.Mutex
	running map[int64]bool // triggers whose outcome is on its way to be recorded
	ended   []int64
	wake    chan struct{}
}

func newDelays() *delays {
	return &delays{running: map[int64]bool{}, wake: make(chan struct{}, 1)}
}

// begun notes that the outcome of a run of a fixed delay will be recorded.
func (d *delays) begun(trigger int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running[trigger] = true
}

// recorded notes those of records that are of fixed delays.
func (d *delays) recorded(records []dispatcher.Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.running) == 0 {
		return
	}
	for _, r := range records {
		if d.running[r.TriggerID] {
			delete(d.running, r.TriggerID)
			d.ended = append(d.ended, r.TriggerID)
			wake(d.wake)
		}
	}
}

// take returns the triggers whose runs were recorded since the last call.
func (d *delays) take() []int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	ended := d.ended
	d.ended = nil
	return ended
}

// recorded lets go of runs whose outcome is stored.
func (e *Engine) recorded(records []dispatcher.Record) {
	e.pool.recorded(records)
	e.delays.recorded(records)
	e.retries.recorded(records, e.clock.until)
	e.slots.recorded(records)
}

// delayLoop arms fixed delays as soon as their runs are recorded.
func (e *Engine) delayLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.delays.wake:
		}
		if ended := e.delays.take(); len(ended) > 0 {
			failpoint.Hit(failpoint.BeforeScheduleNext)
			e.logIf(ctx, "arm fixed delays", e.scheduleNext(ctx, ended, e.clock.now()))
		}
	}
}

// rearm gives fixed delays whose latest run has ended their next fire: those among ids, or
// without ids any, a page at most.
func (e *Engine) scheduleNext(ctx context.Context, ids []int64, now time.Time) error {
	ended, err := e.store.EndedDelays(ctx, ids, pageSize)
	if err != nil || len(ended) == 0 {
		return err
	}
	byID := make(map[int64]dispatcher.EndedDelay, len(ended))
	triggers := make([]dispatcher.DueTrigger, len(ended))
	for i, trigger := range ended {
		byID[trigger.ID], triggers[i] = trigger, trigger.DueTrigger
	}
	armed, err := e.evaluate(ctx, triggers)
	if err != nil {
		return err
	}
	delayed := make([]dispatcher.DelayedFire, len(armed))
	for i := range armed {
		armed[i].arm(byID[armed[i].ID])
		delayed[i] = dispatcher.DelayedFire{
			TriggerID: armed[i].ID, Revision: armed[i].Revision, CalendarRevision: armed[i].CalendarRevision,
			Prev: armed[i].PrevFireTime, Anchor: armed[i].Spec.Anchor, Next: armed[i].NextFireTime, Due: armed[i].DueAt,
		}
	}
	if err := e.store.ScheduleNext(ctx, delayed); err != nil {
		return err
	}
	for _, d := range armed {
		// Anyone who is preferred for the trigger may poll too late for it.
		if !d.NextFireTime.IsZero() && d.DueAt.Before(now.Add(e.opts.Window)) {
			e.timeline.add(d)
		}
	}
	return nil
}

// arm sets the fire that follows the end of a run, none when the runs are used up.
func (e *entry) arm(ended dispatcher.EndedDelay) {
	if count := e.Spec.RepeatCount; count > 0 && ended.Fired+1 >= count {
		return
	}
	if next, ok := e.schedule.Next(ended.EndedAt); ok {
		e.NextFireTime, e.DueAt = next, next.Add(e.schedule.Delay(next))
	}
}
