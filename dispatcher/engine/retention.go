package engine

import (
	"context"
	"time"
)

const (
	// purgePause leaves the database to others between two calls of a long purge, and purgeRest does so for that many
	// times as long as the call took: what is removed is years old, and fires are not to wait for it.
	purgePause = time.Second
	purgeRest  = 4
	// busyPause is how long to wait while another node purges, or after a step that failed.
	busyPause = time.Minute
)

// purgeLoop removes history past its retention, at once and then about every PurgeInterval, in turns with the other
// nodes: what there is to remove is the same for all. While there is more, it goes on after a short pause.
func (e *Engine) purgeLoop(ctx context.Context) {
	for more := true; ctx.Err() == nil; {
		pause := spread(e.opts.PurgeInterval)
		if more || e.fleet.turnToPurge(e.clock.now(), e.opts.PurgeInterval) {
			var err error
			if pause, more, err = e.purgeOnce(ctx); ctx.Err() == nil {
				e.logIf(ctx, "purge history", err)
			}
		}
		sleep(ctx, pause)
	}
}

// purgeOnce makes one round, and returns how long to wait for the next, and whether that is to come in any case. A node
// that died while it purged keeps its lock for a minute, so a node that finds the lock taken looks again then.
func (e *Engine) purgeOnce(ctx context.Context) (pause time.Duration, more bool, err error) {
	begun := time.Now()
	removed, err := e.store.Purge(ctx, e.fleet.id(), time.Time{})
	e.metrics.purged(removed)
	if removed.Partitions+removed.Runs+removed.Misfires+removed.Jobs+removed.AuditEntries > 0 {
		e.log.InfoContext(ctx, "history removed", "node", e.fleet.id().String(), "partitions", removed.Partitions,
			"runs", removed.Runs, "misfires", removed.Misfires, "jobs", removed.Jobs, "audit_entries", removed.AuditEntries)
	}
	switch {
	case err == nil && removed.More:
		return max(purgePause, purgeRest*time.Since(begun)), true, nil
	case removed.Busy, removed.More: // one step failed, and others go on
		return min(spread(busyPause), spread(e.opts.PurgeInterval)), false, err
	}
	return spread(e.opts.PurgeInterval), false, err
}
