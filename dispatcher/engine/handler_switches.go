package engine

import (
	"context"
	"time"
)

// expirePauses ends the pauses whose time is over. Those that are left for the next round are as many as a page, so none
// waits long.
func (e *Engine) expirePauses(ctx context.Context) error {
	turned(ctx)
	ended, err := e.store.ExpirePauses(ctx, handlerPage, time.Time{})
	if ended > 0 {
		e.log.InfoContext(ctx, "pauses ended", "node", e.fleet.id().String(), "count", ended)
	}
	return err
}

// removeCutOffImports removes imports that did not come to their end.
func (e *Engine) removeCutOffImports(ctx context.Context) error {
	turned(ctx)
	removed, err := e.store.RemoveCutOffImports(ctx, time.Time{})
	if removed > 0 {
		e.log.InfoContext(ctx, "imports removed that were cut off", "node", e.fleet.id().String(), "count", removed)
	}
	return err
}

// followSwitches lets triggers follow the switch and the pauses of their app, and whether a node has the labels that their
// job requires. The change itself took some thousand along; the others follow here, a page at a time, each in a
// transaction of its own. After half of an interval it leaves the rest to the next round, of whichever node, because
// the handler has other steps, and other nodes wait for its locks.
func (e *Engine) followSwitches(ctx context.Context) error {
	total, begun := 0, time.Now()
	for more := true; more && time.Since(begun) < e.opts.Handler/2; {
		turned(ctx)
		followed, left, err := e.store.FollowSwitches(ctx, handlerPage)
		if err != nil {
			return err
		}
		total, more = total+followed, left
	}
	if total > 0 {
		e.log.InfoContext(ctx, "triggers follow switches", "node", e.fleet.id().String(), "triggers", total)
	}
	return nil
}
