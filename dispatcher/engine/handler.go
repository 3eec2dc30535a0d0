package engine

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// handlerLoop runs the steps of the cluster and misfire handler every 15 s, give or take a tenth, so
// that the rounds of nodes that started together drift apart. The first round is the node's
// start-up: it settles what happened while no node ran.
func (e *Engine) handlerLoop(ctx context.Context) {
	for ctx.Err() == nil {
		begun := time.Now()
		if err := e.handleOnce(ctx, e.clock.now()); ctx.Err() == nil {
			e.logIf(ctx, "handler", err)
		}
		sleep(ctx, max(spread(e.opts.Handler)-time.Since(begun), shortestPause))
	}
}

// handleOnce makes one round. Steps for the fleet or for an app take a lock, so that one node does
// them in a window. Every write is a compare-and-swap, so a node that froze under a lock and wakes
// when another node has it does no harm.
func (e *Engine) handleOnce(ctx context.Context, now time.Time) error {
	var errs []error
	for _, step := range []struct {
		name string
		do   func(context.Context, time.Time) error
	}{
		{"mark dead nodes", e.markDeadNodes},
		{"skip after a rollback", e.handleRollback},
		{"reschedule for time zones", e.rescheduleForZones},
		{"settle misfires", e.settleMisfires},
		{"reclaim runs", e.reclaim},
		{"roll up job states", e.rollUpStates},
	} {
		if err := step.do(ctx, now); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", step.name, err))
		}
	}
	return errors.Join(errs...)
}
