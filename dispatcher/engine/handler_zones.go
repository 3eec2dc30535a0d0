package engine

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// rescheduleForZones works out again the fire times that another version of the time zone database
// may have given, for example after an upgrade of the fleet. Fires go on meanwhile: each change is a
// compare-and-swap against the claim of the trigger.
func (e *Engine) rescheduleForZones(ctx context.Context, _ time.Time) error {
	changed, err := e.store.ZonesChanged(ctx)
	if err != nil || !changed {
		return err
	}
	return e.withLock(ctx, dispatcher.LockZones, func(ctx context.Context) error {
		moved := 0
		for after, more := int64(0), true; more; {
			done, err := e.store.RescheduleForZones(ctx, after, zonesPage, time.Time{})
			if err != nil {
				return err
			}
			moved, after, more = moved+done.Moved, done.Last, done.More
		}
		e.log.InfoContext(ctx, "triggers rescheduled for this program's time zones", "node", e.fleet.id().String(), "moved", moved)
		return nil
	})
}

// zonesPage is how many triggers one statement reschedules.
const zonesPage = 1000
