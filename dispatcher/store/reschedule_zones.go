package store

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// ZonesChanged tells whether fire times may be worked out with other time zone data than this
// program has.
func (s *store) ZonesChanged(ctx context.Context) (bool, error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	// A node with other zones that was at work since then has written fire times by these. While
	// there is one, it would do so again: two versions must not undo each other's work for ever.
	// $1 this program's zones
	const changed = `SELECT CASE WHEN NOT EXISTS (SELECT 1 FROM nodes AS o WHERE o.zones <> $1 AND o.state <> 'dead')
			AND (i.zones <> $1 OR EXISTS (SELECT 1 FROM nodes AS o WHERE o.zones <> $1 AND o.heartbeat_at >= i.zones_checked_at))
		THEN 1 ELSE 0 END FROM installation AS i`
	n, _, err := first(ctx, s.read, scanInt, changed, schedule.ZonesVersion())
	return n == 1, err
}

// RescheduleForZones works out again the fire times of a page of triggers that depend on time
// zones.
func (s *store) RescheduleForZones(ctx context.Context, after int64, limit int, now time.Time) (done dispatcher.Rescheduled, err error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	if now, err = s.orClock(ctx, now); err != nil {
		return done, err
	}
	// Only fires that depend on the rules of a time zone can move. UTC has none.
	const zoned = `NOT t.delayed AND (t.timezone NOT IN ('', 'UTC') OR t.calendar <> '')`
	page, err := s.reschedule(ctx, zoned, []any{after, limit},
		func(job dispatcher.Job, name string, calendars dispatcher.Calendars) (dispatcher.Trigger, []dispatcher.Misfire) {
			return dispatcher.RescheduleForZones(job, name, calendars, now)
		})
	if err != nil {
		return done, err
	}
	if page.last == 0 {
		return done, s.noteZones(ctx, now)
	}
	done.Last, done.More = page.last, true
	done.Moved, err = s.writeRescheduled(ctx, page.triggers, now, func(ctx context.Context, t *tx, won []int64) error {
		for _, id := range won {
			one := page.triggers[id]
			if err := t.audit(ctx, "zones", one.app, "job "+one.job+" trigger "+one.name, one.revision); err != nil {
				return err
			}
		}
		return t.remember(ctx, dispatcher.CauseZones, won)
	})
	return done, err
}

// noteZones notes that all fire times are by this program's zones.
func (s *store) noteZones(ctx context.Context, now time.Time) error {
	return s.change(ctx, dispatcher.Change{Now: now}, func(ctx context.Context, t *tx) error {
		// $1 zones, $2 now
		_, err := t.ExecContext(ctx, `UPDATE installation SET zones = $1, zones_checked_at = $2`, schedule.ZonesVersion(), t.now.UnixMilli())
		return err
	})
}
