package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// A database that is years old has jobs that were deleted long ago, and sessions that read for
// hours.

// deletedJobs returns a statement that inserts an app and jobs with triggers that were deleted
// beyond every retention. The clean-up removes the jobs while nodes are killed: each node cleans up
// at its start, unless another is doing that or has died during it less than a minute ago.
func deletedJobs() string {
	return fmt.Sprintf(`WITH a AS (INSERT INTO apps (id, name, description, enabled, retention, revision, created_at, updated_at, deleted_at)
		VALUES (1, 'deleted', '', FALSE, 315360000000, 1, 0, 0, 1) RETURNING id),
	j AS (INSERT INTO jobs (id, app_id, name, description, enabled, paused, priority, node_labels, delivery, retry, concurrency_policy,
			max_concurrency, queue_limit, target, payload, trigger_names, revision, created_at, updated_at, deleted_at)
		SELECT n, a.id, 'deleted-' || n, '', TRUE, FALSE, 0, '', 'at_least_once', '{}', 'allow', 0, 0, '{}', '', '[]', 1, 0, n, n
		FROM a CROSS JOIN generate_series(1, %d) AS n RETURNING id, app_id),
	t AS (INSERT INTO triggers (id, job_id, app_id, revision, misfire_after, anchor_at, jitter, repeat_count, fired, enabled, paused,
			job_paused, delayed, drift_hour, name, expression, dialect, timezone, gap, overlap, calendar, on_excluded, error,
			node_labels, deleted_at)
		SELECT j.id * 10 + n, j.id, j.app_id, 1, 60000, 0, 0, 0, 0, TRUE, FALSE, FALSE, FALSE, FALSE, 't' || n, 'rate(1s)', '', '', '', '',
			'', '', '', '', j.id
		FROM j CROSS JOIN generate_series(0, 3) AS n RETURNING id, app_id)
	INSERT INTO trigger_clock (id, app_id, revision, calendar_revision, misfire_after, off, delayed, state, node_labels)
	SELECT id, app_id, 1, 0, 60000, 0, FALSE, 'complete', '' FROM t`, history.DeletedJobs)
}

// age fills the database like an old one.
func (c *chaos) age(ctx context.Context) error {
	return c.database.Execute(ctx, databaseName, deletedJobs())
}

// holdSnapshot keeps a snapshot open for as long as the run continues, so that no dead version of a
// row can be removed. After an outage of the database, it opens another one.
func (c *chaos) holdSnapshot(ctx context.Context) {
	for ; ctx.Err() == nil; pause(ctx, time.Second) {
		from := time.Now()
		if c.readOn(ctx) {
			c.note(history.Snapshot, "", from, time.Now())
		}
	}
}

// readOn reads in one transaction until ctx ends or the connection does. It reports whether it had a snapshot.
func (c *chaos) readOn(ctx context.Context) bool {
	conn, err := pgx.Connect(ctx, c.database.URL(databaseName))
	if err != nil {
		return false
	}
	defer conn.Close(context.WithoutCancel(ctx))
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	read := false
	for err == nil && ctx.Err() == nil {
		var runs int64
		if err = tx.QueryRow(ctx, `SELECT count(*) FROM runs`).Scan(&runs); err == nil {
			read = true
			pause(ctx, 2*time.Second)
		}
	}
	return read
}
