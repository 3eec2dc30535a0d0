package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
)

// markDeadNodes declares nodes dead whose heartbeats stayed out, and takes over from them. A node
// that may not judge others leaves the lock to those that may.
func (e *Engine) markDeadNodes(ctx context.Context, _ time.Time) error {
	heartbeat, may := e.fleet.mayMarkDead()
	if !may {
		return e.takeOver(ctx)
	}
	return e.withLock(ctx, dispatcher.LockFleet, func(ctx context.Context) error {
		dead, err := e.store.MarkDead(ctx, e.fleet.id(), heartbeat, e.opts.DeadAfter, time.Time{})
		if err != nil {
			return fmt.Errorf("declare nodes dead: %w", err)
		}
		if dead > 0 {
			e.log.WarnContext(ctx, "nodes declared dead", "count", dead)
			wake(e.wakeAdopt)
		}
		failpoint.Hit(failpoint.UnderLock)
		return e.takeOver(ctx)
	})
}

// takeOver ends the runs of dead nodes that may have been sent and must not be repeated, and passes
// the slots of dead nodes on. The adopt loop takes their other runs.
func (e *Engine) takeOver(ctx context.Context) error {
	lost, err := e.store.FailLostRuns(ctx, time.Time{})
	if err != nil {
		return fmt.Errorf("fail begun runs of dead nodes: %w", err)
	}
	if lost > 0 {
		e.log.WarnContext(ctx, "runs lost", "reason", "dead_node_at_most_once", "count", lost)
	}
	return e.store.GrantWaiting(ctx)
}
