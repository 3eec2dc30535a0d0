package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
)

// Bounds of a round: how many states, jobs and late fires a portion has, and how many portions. More is left for the next round,
// which goes on where this one ended.
const (
	alertPage     = 200
	alertPortions = 100
)

// watchAlerts looks at the conditions of alerts that time decides about, and lets jobs follow changes of alerts.
func (e *Engine) watchAlerts(ctx context.Context) error {
	late := &alert.LateFire{}
	for range alertPortions {
		turned(ctx)
		done, last, err := e.store.WatchAlerts(ctx, late, alertPage, time.Time{})
		if err != nil {
			return fmt.Errorf("watch alerts: %w", err)
		}
		if done.Notified > 0 {
			failpoint.Hit(failpoint.AfterAlertWatch)
			e.log.InfoContext(ctx, "alerts notified", "node", e.fleet.id().String(), "count", done.Notified)
			wake(e.wakeAdopt)
		}
		if late = last; !done.More {
			return nil
		}
	}
	return nil
}
