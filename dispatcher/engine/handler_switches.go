package engine

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// followSwitches lets triggers follow the switch of their app, and whether a node has the labels that their job
// requires. The change itself took some thousand along; the others follow here, a page at a time, each in a
// transaction of its own. A round that ends in between is continued by the next, of whichever node.
func (e *Engine) followSwitches(ctx context.Context, _ time.Time) error {
	return e.withLock(ctx, dispatcher.LockSwitches, func(ctx context.Context) error {
		total := 0
		for more := true; more; {
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
	})
}
