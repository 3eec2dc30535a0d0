package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// oldestExamined is how many of the oldest runs are looked through for one that should be gone: runs that ended late, such as
// those of a backfill, are kept for longer.
const oldestExamined = 1000

// lateRetention returns the history that should be gone at now: that which no app keeps, and that of each app that keeps less
// than others, as far as its sweep is behind. Those that are behind for longer come first.
func (s *Store) lateRetention(ctx context.Context, now time.Time) ([]view.LateRetention, error) {
	type kept struct {
		name                                string
		retention, from, sweptTo, createdAt int64
		deleted                             bool
	}
	// As purge.retentions: the history of a deleted app is kept as long as that of others.
	const list = `SELECT a.name, a.retention, a.history_from, a.sweep_from, a.created_at, a.deleted_at IS NOT NULL FROM apps AS a
		WHERE a.deleted_at IS NULL OR EXISTS (SELECT 1 FROM jobs AS j WHERE j.app_id = a.id)`
	apps, err := db.Collect(ctx, s.db.Read, func(row db.Scanner) (k kept, err error) {
		err = row.Scan(&k.name, &k.retention, &k.from, &k.sweptTo, &k.createdAt, &k.deleted)
		return k, err
	}, list)
	if err != nil || len(apps) == 0 {
		return nil, err
	}
	longest := slices.MaxFunc(apps, func(a, b kept) int { return cmp.Compare(a.retention, b.retention) }).retention
	var late []view.LateRetention
	add := func(app string, retention, oldest, gone int64) {
		if behind := db.Day(now.UnixMilli()-retention) - gone; behind > 0 {
			late = append(late, view.LateRetention{App: app, Retention: db.Millis(retention), Oldest: db.Instant(oldest),
				Behind: db.Millis(behind)})
		}
	}
	oldest, gone, found, err := s.oldestHistory(ctx)
	if err != nil {
		return nil, err
	}
	if found {
		add("", longest, oldest, gone)
	}
	for _, app := range apps {
		// What is from before the app was created is a backfill's, and is kept by when it ended.
		if from := max(app.from, app.sweptTo, db.Day(app.createdAt)); app.retention < longest && !app.deleted {
			add(app.name, app.retention, from, from)
		}
	}
	slices.SortStableFunc(late, func(a, b view.LateRetention) int {
		return cmp.Or(cmp.Compare(b.Behind, a.Behind), cmp.Compare(a.App, b.App))
	})
	return late, nil
}

// oldestHistory returns where the runs that there are begin, and from when on retention has to have removed them to be up to
// date.
func (s *Store) oldestHistory(ctx context.Context) (oldest, gone int64, found bool, err error) {
	if s.db.ByDay() {
		there, err := db.Partitions(ctx, s.db.Read)
		if err != nil {
			return 0, 0, false, err
		}
		if len(there) > 0 { // it goes with the day after it; see db.RotatePartitions
			oldest, gone, found = there[0].Day, there[0].Day+2*db.DayMillis, true
		}
	}
	one, other, err := db.First(ctx, s.db.Read, db.ScanNullInt, `SELECT min(r.scheduled_at) FROM (SELECT r.scheduled_at, r.ended_at FROM `+
		s.db.Unpartitioned()+` AS r ORDER BY r.scheduled_at LIMIT `+strconv.Itoa(oldestExamined)+`) AS r WHERE NOT (`+endedLate+`)`)
	if err != nil {
		return 0, 0, false, fmt.Errorf("look for the oldest runs: %w", err)
	}
	if other && one != nil && (!found || *one+db.DayMillis < gone) {
		oldest, gone, found = *one, *one+db.DayMillis, true
	}
	return oldest, gone, found, nil
}

// retention looks for history that should have been gone for long.
func (l *looker) retention(ctx context.Context) error {
	late, err := l.lateRetention(ctx, l.at)
	l.found.Retention = begin(slices.DeleteFunc(late, func(r view.LateRetention) bool {
		other := len(l.apps) > 0 && !slices.Contains(l.apps, run.AppID(r.App))
		return other || r.Behind.Std() <= view.RetentionLate
	}))
	return err
}
