package retention

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

// The sweep of an app removes expired runs of the app from days that other apps still keep. It searches for each job in
// each day, some days at a time: planning a statement for a year of partitions would take longer than running it. Most
// sweeps cover one day. The first sweep of an app, or the one after its retention was shortened, covers many: it takes
// many calls, and its progress is stored between them.

const (
	// sweepLooks is how many look-ups of a job in a day a sweep does in one call, about a tenth of a second.
	sweepLooks = 60_000
	// pageLooks is the additional cost of a page.
	pageLooks = 500
	// sweepDays is how many days one statement covers.
	sweepDays = 30
)

// sweepOverlap is how far each sweep of an app goes back behind the previous one. Sweeps go by days and may be late; a
// longer retention is noted to the millisecond.
const sweepOverlap = 2 * db.DayMillis

// sweep is the progress of the sweep of an app: the history before from is removed. In the following days, the jobs up
// to after by name are done. It ends at to; 0: no sweep is in progress.
type sweep struct {
	from, to int64
	after    string
}

// sweepApps removes the expired history of apps that keep less than others. A call begins where the previous one ended,
// so that no app waits for another with much to remove, and a failed one does not stop the others.
func (t *Purge) sweepApps(ctx context.Context, apps []keeping, longest, present int64) error {
	aged := slices.DeleteFunc(slices.Clone(apps), func(a keeping) bool {
		return a.kept >= longest || a.from >= db.Day(present-a.kept)
	})
	if aged = dispatch.WithoutAsides(t.dispatch.Asides, dispatcher.WorkPurge, aged, sweepItem, t.present()); len(aged) == 0 {
		return nil
	}
	last, err := dispatch.Cursor(ctx, t.db.Read, dispatcher.LockHistory)
	if err != nil {
		return err
	}
	slices.SortFunc(aged, func(a, b keeping) int { return cmp.Compare(a.app, b.app) })
	next := slices.IndexFunc(aged, func(a keeping) bool { return a.app > last })
	aged = append(aged[max(next, 0):], aged[:max(next, 0)]...)
	var errs []error
	reached := last
	for i, app := range aged {
		err := t.dispatch.OrAside(ctx, func() error { return t.sweepApp(ctx, app, db.Day(present-app.kept)) }, func(why error) error {
			return t.dispatch.SetAside(ctx, dispatch.AsideRow{Work: dispatcher.WorkPurge, Item: sweepItem(app), App: app.app}, why, t.Now)
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("app %d: %w", app.app, err))
		}
		reached = app.app
		if t.used {
			break
		}
		// Another transaction was in the way of this one.
		t.stopped = false
		if ctx.Err() != nil || i+1 == len(aged) {
			break
		}
	}
	return errors.Join(append(errs, dispatch.MoveCursor(ctx, t.db.Write, dispatcher.LockHistory, last, reached))...)
}

// sweepItem names the sweep of an app that is set aside.
func sweepItem(app keeping) string { return "history of app " + strconv.FormatInt(app.app, 10) }

// sweepApp continues the sweep of an app, or begins one, for the history before an instant.
func (t *Purge) sweepApp(ctx context.Context, app keeping, before int64) error {
	start := max(db.Day(app.from)-sweepOverlap, 0)
	s := app.sweep
	if s.to == 0 || s.to > before { // none is in progress, or the retention is longer now
		earliest := int64(math.MaxInt64) // there are no runs
		if _, err := db.ReadRow(ctx, t.db.Read, []any{&earliest}, `SELECT scheduled_at FROM runs ORDER BY scheduled_at LIMIT 1`); err != nil {
			return err
		}
		// Its last part includes misfires.
		s = sweep{from: min(max(start, db.Day(earliest)), before-db.DayMillis), to: before}
	}
	begun, err := s, error(nil)
	for looks := 0; s.from < s.to && err == nil && !t.over(); {
		if looks >= sweepLooks {
			t.used = true
			break
		}
		err = t.sweepPage(ctx, app.app, &s, &looks)
	}
	if s != begun && s.from < s.to {
		// $1 app, $2 from, $3 to, $4 after
		err = errors.Join(err, t.noteSweep(ctx, `UPDATE apps SET sweep_from = $2, sweep_to = $3, sweep_after = $4 WHERE id = $1`,
			app.app, s.from, s.to, s.after))
	}
	if err != nil || t.over() {
		return err
	}
	err = t.repeat(ctx, t.size, s.to, func(ctx context.Context, tx *sql.Tx, before int64, size int) (int, error) {
		return t.removeSelected(ctx, tx, size, expiredLate, func(most int) []any { return []any{before, most, app.app, start} })
	})
	if err != nil || t.over() {
		return err
	}
	// The app has no history from before its sweep, so the next sweep begins there. $1 app, $2 before
	return t.noteSweep(ctx, `UPDATE apps SET history_from = CASE WHEN history_from < $2 THEN $2 ELSE history_from END,
		sweep_from = 0, sweep_to = 0, sweep_after = '' WHERE id = $1`, app.app, s.to)
}

// expiredLate are the runs of an app that ended late since a sweep began. From then on they are found by their jobs.
// $2 limit, $3 app, $4 where the sweep began
const expiredLate = `SELECT r.scheduled_at, r.trigger_id, r.kind FROM runs AS r JOIN jobs AS j ON j.id = r.job_id
	WHERE ` + dispatch.EndedLate + ` AND r.ended_at >= $4 AND r.ended_at < $1 AND r.scheduled_at < $4 AND j.app_id = $3
	ORDER BY r.ended_at LIMIT $2`

// sweepPage removes the expired history of some jobs in the current days of a sweep.
func (t *Purge) sweepPage(ctx context.Context, app int64, s *sweep, looks *int) error {
	end, days := s.to, int64(1)
	if t.db.ByDay() {
		end = min(end, db.Day(s.from)+sweepDays*db.DayMillis)
		days = max(1, (end-s.from)/db.DayMillis)
	}
	last := s.after
	// $1 app, $2 last name of the page before, $3 limit
	const jobs = `SELECT id, name FROM jobs WHERE app_id = $1 AND name > $2 ORDER BY name LIMIT $3`
	ids, err := db.Collect(ctx, t.db.Read, func(row db.Scanner) (id int64, err error) {
		err = row.Scan(&id, &last)
		return id, err
	}, jobs, app, s.after, purgeJobs)
	if err != nil {
		return err
	}
	*looks += len(ids)*int(days) + pageLooks
	if len(ids) > 0 {
		if err := t.removeOf(ctx, ids, sweep{from: s.from, to: end}, s.to); err != nil || t.over() {
			return err
		}
	}
	if s.after = last; len(ids) < purgeJobs {
		s.from, s.after = end, ""
	}
	return nil
}

// removeOf removes expired history of some jobs: runs of a part of a sweep and, with its last part, misfires.
func (t *Purge) removeOf(ctx context.Context, jobs []int64, part sweep, before int64) error {
	if part.to == before {
		misfires := expiredMisfires
		misfires.with, misfires.from = t.db.Rows(0, 3, "", db.IDColumns...), `b JOIN `+misfires.table+` AS a ON a.job_id = b.id`
		if err := t.repeat(ctx, t.size, before, t.removeRows(misfires, &t.Result.Misfires, t.db.Batch(jobs)...)); err != nil || t.over() {
			return err
		}
	}
	found, err := t.jobsWithExpired(ctx, jobs, part, before)
	for len(found) > 0 && err == nil && !t.over() {
		var group []int64
		for runs := 0; len(found) > 0 && (runs == 0 || runs+found[0].runs <= t.size); found = found[1:] {
			group, runs = append(group, found[0].job), runs+found[0].runs
		}
		err = t.repeat(ctx, t.size, before, func(ctx context.Context, tx *sql.Tx, before int64, size int) (int, error) {
			return t.removeSelected(ctx, tx, size, t.db.Rows(0, 5, "", db.IDColumns...)+t.db.ExpiredOfJobs(),
				func(most int) []any { return append([]any{before, part.from, part.to, most}, t.db.Batch(group)...) })
		})
	}
	return err
}

// runsOfJob is the number of expired runs of a job in some days, counted up to a limit.
type runsOfJob struct {
	job  int64
	runs int
}

// jobsWithExpired returns the jobs that have expired runs in a part of a sweep. A batch then queries only the jobs that
// fill it: if each batch read all jobs from the first on, it would pass the removed runs of earlier batches that a
// snapshot keeps.
func (t *Purge) jobsWithExpired(ctx context.Context, jobs []int64, part sweep, before int64) ([]runsOfJob, error) {
	// $1 before when they have ended, $2 and $3 bounds of their instants, $4 limit, from $5 on: ids
	counts := t.db.Rows(0, 5, "", db.IDColumns...) + ` SELECT b.id, (SELECT count(*) FROM
		(SELECT 1 FROM runs AS r WHERE r.job_id = b.id` + db.ExpiredIn + ` LIMIT $4) AS counted) FROM b`
	found, err := db.ReadRows(ctx, t.db.Read, func(one *runsOfJob) []any { return []any{&one.job, &one.runs} },
		counts, append([]any{before, part.from, part.to, t.size}, t.db.Batch(jobs)...)...)
	return slices.DeleteFunc(found, func(one runsOfJob) bool { return one.runs == 0 }), err
}

// noteSweep stores the progress of a sweep in the row of its app.
func (t *Purge) noteSweep(ctx context.Context, note string, args ...any) error {
	done, err := t.tryTransaction(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, note, args...)
		return err
	})
	t.stopped = t.stopped || !done
	return err
}
