package db

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// Where a database has no notifications, a change leaves its own in a table, in the same transaction, and each node
// looks there. Nothing else differs: a notification says the same, and may be lost.

const (
	// watchInterval is how often a node looks. A change takes effect that much later.
	watchInterval = time.Second
	// watchOverlap is how long a transaction may take from what it leaves to its commit. By a clock of another
	// server it may have left that earlier, too.
	watchOverlap = OtherTimeout + 5*time.Second
	// watchLimit bounds one look. More than that means that anything may have changed.
	watchLimit = 1000
	// watchKept is how long a notification stays: longer than nodes look back.
	watchKept = time.Minute
)

// PostgresMillis is the clock of the database.
const PostgresMillis = `CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)`

const (
	// $1 random id, $2 payload
	leaveNotification = `INSERT INTO notifications (at, id, payload) VALUES (` + PostgresMillis + `, $1, $2)`
	// $1 milliseconds, $2 limit
	leftNotifications = `SELECT id, payload FROM notifications WHERE at >= ` + PostgresMillis + ` - $1 ORDER BY at DESC, id LIMIT $2`
	// $1 milliseconds
	removeNotifications = `DELETE FROM notifications WHERE at < ` + PostgresMillis + ` - $1`
)

// leaveNotifications is SendNotifications without notifications.
func leaveNotifications(ctx context.Context, tx *sql.Tx, notifications []dispatcher.Notification) error {
	for _, payload := range payloads(notifications) {
		if _, err := tx.ExecContext(ctx, leaveNotification, rand.Int64(), payload); err != nil {
			return fmt.Errorf("leave a notification: %w", err)
		}
	}
	return nil
}

// watcher looks for what is left.
type watcher struct {
	db *sql.DB
	// told are the ids of the latest look: they, and those that are new, are all that the next one can find.
	told map[int64]bool
}

// look returns the notifications that are new.
func (w *watcher) look(ctx context.Context) (found []dispatcher.Notification, err error) {
	type left struct {
		id      int64
		payload string
	}
	all, err := Collect(ctx, w.db, func(row Scanner) (l left, err error) {
		return l, row.Scan(&l.id, &l.payload)
	}, leftNotifications, watchOverlap.Milliseconds(), watchLimit)
	if err != nil {
		return nil, fmt.Errorf("look for notifications: %w", err)
	}
	told := make(map[int64]bool, len(all))
	for _, one := range all {
		told[one.id] = true
		if !w.told[one.id] {
			found = append(found, notificationsIn(one.payload)...)
		}
	}
	if len(all) == watchLimit {
		found = append(found, dispatcher.Notification{})
	}
	w.told = told
	return Coalesced(found), nil
}

// watch is listen without notifications.
func (p *Postgres) watch(ctx context.Context, notification func(dispatcher.Notification)) error {
	w := &watcher{db: p.db}
	if _, err := w.look(ctx); err != nil {
		return err
	}
	// What happened before this moment was not seen.
	notification(dispatcher.Notification{})
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for looks := rand.IntN(int(watchKept / watchInterval)); ; looks++ { // nodes take turns
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		found, err := w.look(ctx)
		if err == nil && looks%int(watchKept/watchInterval) == 0 {
			err = RemoveLeft(ctx, p.db)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		for _, one := range found {
			notification(one)
		}
		notification(dispatcher.Notification{Adopt: true}) // runs may wait that nobody told of
	}
}

// RemoveLeft removes the notifications that no node looks for any more.
func RemoveLeft(ctx context.Context, db *sql.DB) error {
	if _, err := db.ExecContext(ctx, removeNotifications, watchKept.Milliseconds()); err != nil {
		return fmt.Errorf("remove notifications: %w", err)
	}
	return nil
}
