package engine

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// leftSlots are slots that the database says this node has, for attempts that it does not make.
type leftSlots struct {
	missed map[leftSlot]time.Time // when the attempt of a slot was first missed
	at     time.Time              // when the node last looked
}

// leftSlot is what an attempt of a run has taken under a token.
type leftSlot struct {
	dispatcher.RunKey
	token dispatcher.Token
}

// releaseLeftSlots gives back the slots of attempts that this node does not make: the release was among the commits that a
// rollback lost, or the run was cancelled before the node learned that it has it. A cancelled run keeps its slot while its
// node lives, because its request may be in flight, so only the node itself can tell that none is. An attempt that is missed
// now may be on its way to the pool; one that is still missed an interval later is not. While a rollback awaits its choice
// the runs are still live, and replay attempts them with their slots.
func (e *Engine) releaseLeftSlots(ctx context.Context, now time.Time) error {
	waits := e.fleet.awaitsRollbackChoice()
	if !waits && len(e.left.missed) == 0 && !passed(e.left.at, now, reclaimInterval) {
		return nil
	}
	found, err := e.findLeftSlots(ctx)
	if err != nil {
		return err
	}
	missed := make(map[leftSlot]time.Time, len(found))
	var release []dispatcher.HeldRun
	for _, run := range found {
		key := leftSlot{run.RunKey, run.Token}
		since, again := e.left.missed[key]
		if !again {
			since = now
		}
		missed[key] = since
		if !waits && now.Sub(since) >= e.opts.Handler {
			release = append(release, run)
		}
	}
	e.left = leftSlots{missed: missed, at: now}
	if len(release) == 0 {
		return nil
	}
	if err := e.store.ReleaseSlots(ctx, release); err != nil {
		return err // the next round repeats it
	}
	for _, run := range release {
		e.log.WarnContext(ctx, "slot released", "reason", "attempt_not_here", "node", e.fleet.id().String(), "run", run.String())
	}
	e.metrics.leftSlots.Add(float64(len(release)))
	return nil
}

// findLeftSlots returns the slots that this node has, by the database, without the attempt.
func (e *Engine) findLeftSlots(ctx context.Context) (found []dispatcher.HeldRun, err error) {
	var after dispatcher.SlotKey
	for more := true; more; {
		turned(ctx)
		page, err := e.store.LeftSlots(ctx, e.fleet.id(), after, handlerPage)
		if err != nil {
			return nil, err
		}
		for _, run := range page.Runs {
			// In this order: an attempt leaves the pool before it gives back its slot.
			if !e.pool.OwnsAny(run.RunKey, run.Token) && !e.slots.has(run) {
				found = append(found, run)
			}
		}
		after, more = page.Last, page.More
	}
	return found, nil
}
