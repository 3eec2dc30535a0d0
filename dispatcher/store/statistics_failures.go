package store

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// The history has no index by app, because each fire would pay for it. So the handler notes the latest failure of each app, by a
// cursor over runs_failed. Where nothing fails, it finds that out by one statement and writes nothing.

const (
	lockFailures = dispatcher.LockStatistics + "_failures" // the row of locks with the cursor
	// failuresAtOnce is how many failures one portion has, unless one millisecond has more.
	failuresAtOnce = 20_000
	// failuresAgain is how far back a portion begins before the cursor: what ended before it may have been committed after it.
	failuresAgain = 10_000
)

// noteFailures notes the latest failure of each app. more: the next call goes on.
func (s *Store) noteFailures(ctx context.Context, now time.Time) (more bool, err error) {
	since := now.Add(-view.AttentionSpan).UnixMilli()
	type portion struct{ at, count, to int64 }
	// $1 name of the cursor, $2 since when, $3 how many
	const (
		at  = `coalesce((SELECT l.cursor FROM locks AS l WHERE l.name = $1), 0)`
		end = `SELECT ` + at + `, count(*), coalesce(max(r.ended_at), 0) FROM (SELECT r.ended_at FROM runs AS r WHERE ` + db.IsDead + `
			AND r.kind < 16 AND r.ended_at >= $2 AND r.ended_at >= ` + at + ` ORDER BY r.ended_at LIMIT $3) AS r`
	)
	p, _, err := db.First(ctx, s.db.Read, func(row db.Scanner) (p portion, err error) {
		err = row.Scan(&p.at, &p.count, &p.to)
		return p, err
	}, end, lockFailures, since, failuresAtOnce)
	if err != nil || p.count == 0 {
		return false, err
	}
	from := max(p.at, since)
	next := now.UnixMilli() - failuresAgain
	if p.count == failuresAtOnce {
		next = min(next, p.to)
		more = next > from // else the rest of the last seconds is for the next round
	}
	next = max(next, from)
	err = s.change(ctx, input.Change{Now: now}, func(ctx context.Context, t *tx) error {
		if _, err := t.ExecContext(ctx, noteLatest, from, p.to); err != nil {
			return err
		}
		// $1 since when
		if _, err := t.ExecContext(ctx, `DELETE FROM app_failures WHERE ended_at < $1`, since); err != nil {
			return err
		}
		return moveCursor(ctx, t, lockFailures, p.at, next)
	})
	if err != nil {
		return false, fmt.Errorf("note %d failures: %w", p.count, err)
	}
	return more, nil
}

// noteLatest notes, of each app, the latest of the failures from an end to another.
// $1 from, $2 to, both inclusive
const noteLatest = `INSERT INTO app_failures AS f (app_id, ended_at, scheduled_at, trigger_id, kind)
	SELECT d.app_id, d.ended_at, d.scheduled_at, d.trigger_id, d.kind FROM (
		SELECT j.app_id, r.ended_at, r.scheduled_at, r.trigger_id, r.kind,
			row_number() OVER (PARTITION BY j.app_id ORDER BY r.ended_at DESC, r.scheduled_at DESC, r.trigger_id DESC) AS place
		FROM runs AS r JOIN jobs AS j ON j.id = r.job_id
		WHERE ` + db.IsDead + ` AND r.kind < 16 AND r.ended_at >= $1 AND r.ended_at <= $2) AS d
	WHERE d.place = 1 ORDER BY d.app_id
	ON CONFLICT (app_id) DO UPDATE SET ended_at = excluded.ended_at, scheduled_at = excluded.scheduled_at,
		trigger_id = excluded.trigger_id, kind = excluded.kind WHERE excluded.ended_at >= f.ended_at`
