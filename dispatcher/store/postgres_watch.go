package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// Where a database has no notifications, each node looks for what they would have said: what changed is in the audit
// log, a run that was replaced by another still has its slot, and whatever waits for a node is found by looking for it.

const (
	// watchInterval is how often a node looks. A change takes effect that much later.
	watchInterval = time.Second
	// watchOverlap is how long before the latest entry another may still be committed: that of a transaction that
	// began earlier and took longer, by a clock of another server.
	watchOverlap = otherTimeout + 5*time.Second
	// watchLimit bounds one look. Of more changes the rest is found by the poll.
	watchLimit = 5000
)

// $1 since, $2 limit
const auditedSince = `SELECT at, id, action, subject FROM audit_log WHERE at >= $1 ORDER BY at DESC, id LIMIT $2`

// replacedRuns are those that are over and whose nodes have yet to give up their requests.
const replacedRuns = `SELECT s.scheduled_at, s.trigger_id, s.kind FROM slots AS s WHERE s.node <> 0 AND NOT EXISTS (SELECT 1 FROM runs AS r
	WHERE r.scheduled_at = s.scheduled_at AND r.trigger_id = s.trigger_id AND r.kind = s.kind AND r.live)`

// auditedChange is an entry of the audit log.
type auditedChange struct {
	at, id          int64
	action, subject string
}

// notification is what would have been sent.
func (c auditedChange) notification() dispatcher.Notification {
	run, ok := strings.CutPrefix(c.subject, "run ")
	if ok && c.action == "cancel" {
		return dispatcher.Notification{Run: run}
	}
	return dispatcher.Notification{}
}

// watcher remembers what it has told.
type watcher struct {
	db     *sql.DB
	latest int64              // when the latest known change was
	known  map[[2]int64]int64 // at and id of the changes from about then
}

// changes returns those that it has not returned before.
func (w *watcher) changes(ctx context.Context) (found []auditedChange, err error) {
	since := w.latest - watchOverlap.Milliseconds()
	all, err := collect(ctx, w.db, func(row scanner) (c auditedChange, err error) {
		return c, row.Scan(&c.at, &c.id, &c.action, &c.subject)
	}, auditedSince, since, watchLimit)
	if err != nil {
		return nil, err
	}
	for _, one := range all {
		key := [2]int64{one.at, one.id}
		if _, told := w.known[key]; !told {
			w.known[key] = one.at
			found = append(found, one)
		}
		w.latest = max(w.latest, one.at)
	}
	for key, at := range w.known {
		if at < w.latest-2*watchOverlap.Milliseconds() {
			delete(w.known, key)
		}
	}
	return found, nil
}

// watchChanges is listen without notifications.
func (p *postgres) watchChanges(ctx context.Context, notification func(dispatcher.Notification)) error {
	latest, _, err := first(ctx, p.db, scanInt, `SELECT COALESCE(max(at), 0) FROM audit_log`)
	if err != nil {
		return fmt.Errorf("read the latest change: %w", err)
	}
	w := &watcher{db: p.db, latest: latest, known: map[[2]int64]int64{}}
	if _, err := w.changes(ctx); err != nil {
		return fmt.Errorf("read the latest changes: %w", err)
	}
	// What happened before this moment was not seen.
	notification(dispatcher.Notification{})
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		changes, err := w.changes(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("look for changes: %w", err)
		}
		replaced, err := collect(ctx, p.db, scanKey, replacedRuns)
		if err != nil {
			return fmt.Errorf("look for replaced runs: %w", err)
		}
		for _, key := range replaced {
			kind, _ := dispatcher.KindOfCode(byte(key.kind))
			run := dispatcher.RunKey{TriggerID: key.trigger, ScheduledAt: instant(key.at), Kind: kind}
			notification(dispatcher.Notification{Run: run.String()})
		}
		notification(dispatcher.Notification{Adopt: true}) // runs wait, perhaps
		told := map[dispatcher.Notification]bool{}
		for _, one := range changes {
			if n := one.notification(); !told[n] {
				told[n] = true
				notification(n)
			}
		}
	}
}
