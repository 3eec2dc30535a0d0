package reads

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// defaultStatistics is how far back statistics go without a given beginning.
const defaultStatistics = 30 * 24 * time.Hour

// Statistics returns the sums of the runs of some days. It uses the final counts of days that both passes counted.
func (s *Store) Statistics(ctx context.Context, query view.StatisticsQuery) (found view.Statistics, err error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	if query.Now, err = s.db.OrClock(ctx, query.Now); err != nil {
		return found, err
	}
	if query.To.IsZero() {
		query.To = query.Now
	}
	if query.From.IsZero() {
		query.From = query.To.Add(-defaultStatistics)
	}
	final, err := dispatch.Cursor(ctx, s.db.Read, statisticsPasses[1].cursor)
	if err != nil {
		return found, err
	}
	counted, err := dispatch.Cursor(ctx, s.db.Read, statisticsPasses[0].cursor)
	if err != nil {
		return found, err
	}
	found.CountedTo = db.Instant(counted)
	// $1 the first day, $2 the last, $3 up to when the second pass has counted
	var w db.Conditions
	w.Add("s.day >= %s AND s.day <= %s", db.Day(query.From.UnixMilli()), db.Day(query.To.UnixMilli()))
	w.Add("s.final = (s.day + 86400000 <= %s)", final)
	of := ``
	if query.Apps != nil {
		ids := make([]int64, len(query.Apps))
		for i, name := range query.Apps {
			ids[i] = run.AppID(name)
		}
		of = ` AND s.app_id` + s.db.In(len(w.Args)+1)
		w.Args = append(w.Args, s.db.List(ids))
	}
	list := `SELECT s.day, s.state, sum(s.runs), sum(s.attempts), sum(s.started), sum(s.late_sum), max(s.late_most)
		FROM run_statistics AS s WHERE 1 = 1` + w.Text + of + ` GROUP BY s.day, s.state ORDER BY s.day, s.state`
	rows, err := db.ReadRows(ctx, s.db.Read, func(c *countedDay) []any {
		return []any{&c.day, &c.state, &c.runs, &c.attempts, &c.started, &c.lateSum, &c.lateMost}
	}, list, w.Args...)
	found.Days = daysOf(rows, final)
	return found, err
}

// countedDay are the counts of one state on one day.
type countedDay struct {
	day                                        int64
	state                                      string
	runs, attempts, started, lateSum, lateMost int64
}

// daysOf combines the counts of states, which are in the order of their days.
func daysOf(rows []countedDay, final int64) []view.DayStatistics {
	days := []view.DayStatistics{}
	late := int64(0) // of the last day
	for i, c := range rows {
		if i == 0 || rows[i-1].day != c.day {
			late = 0
			days = append(days, view.DayStatistics{
				Day: db.Instant(c.day).Format(time.DateOnly), Runs: map[run.State]int64{}, Final: c.day+db.DayMillis <= final,
			})
		}
		d := &days[len(days)-1]
		if c.state == "" {
			d.Misfires = c.runs
			continue
		}
		d.Runs[run.State(c.state)] = c.runs
		d.Attempts += c.attempts
		d.Started += c.started
		d.LateMost = max(d.LateMost, db.Millis(c.lateMost))
		if late += c.lateSum; d.Started > 0 {
			d.LateMean = db.Millis(late / d.Started)
		}
	}
	return days
}

// The history has no index of apps, because each fire would pay for it. So the handler notes the latest failure of each
// app, with a cursor over runs_failed. Without failures it needs only one statement and writes nothing.

const (
	lockFailures = dispatcher.LockStatistics + "_failures" // the row of locks with the cursor
	// failuresAtOnce is how many failures one portion has, unless one millisecond has more.
	failuresAtOnce = 20_000
	// failuresAgain is how far back a portion begins before the cursor: earlier ends may have been committed after it.
	failuresAgain = 10_000
)

// noteFailures notes the latest failure of each app. more: the next call continues.
func (s *Store) noteFailures(ctx context.Context, now time.Time) (more bool, err error) {
	since := now.Add(-view.AttentionSpan).UnixMilli()
	// $1 name of the cursor, $2 since when, $3 how many
	const (
		at  = `coalesce((SELECT l.cursor FROM locks AS l WHERE l.name = $1), 0)`
		end = `SELECT ` + at + `, count(*), coalesce(max(r.ended_at), 0) FROM (SELECT r.ended_at FROM runs AS r WHERE ` + db.IsDead + `
			AND r.kind < 16 AND r.ended_at >= $2 AND r.ended_at >= ` + at + ` ORDER BY r.ended_at LIMIT $3) AS r`
	)
	var p struct{ at, count, to int64 }
	_, err = db.ReadRow(ctx, s.db.Read, []any{&p.at, &p.count, &p.to}, end, lockFailures, since, failuresAtOnce)
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
	err = s.dispatch.Change(ctx, input.Change{Now: now}, func(ctx context.Context, t *dispatch.Tx) error {
		if err := t.Exec(ctx, noteLatest, from, p.to); err != nil {
			return err
		}
		// $1 since when
		if err := t.Exec(ctx, `DELETE FROM app_failures WHERE ended_at < $1`, since); err != nil {
			return err
		}
		return dispatch.MoveCursor(ctx, t, lockFailures, p.at, next)
	})
	if err != nil {
		return false, fmt.Errorf("note %d failures: %w", p.count, err)
	}
	return more, nil
}

// noteLatest notes the latest failure of each app with an end in a span of time.
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

// How runs are counted exactly once by day, although runs have no mark for it:
//
// Each run belongs to one instant: its scheduled time if it ended within 24 hours of that, else its end. So the runs of
// a portion of time no longer change a little more than 24 hours after it. Two passes follow the clock, each with its
// own cursor: one counts a portion a few minutes after it, for users who look at today, the other counts it again when
// it no longer changes. The counts of a pass and its cursor are one transaction. When the second pass has finished a
// day, the counts of the first pass for it are deleted.

// statisticsPass is one of the two passes.
type statisticsPass struct {
	cursor string // a row of locks
	final  bool
	lag    int64 // milliseconds behind now
}

var statisticsPasses = []statisticsPass{
	{dispatcher.LockStatistics, false, 2 * 60_000},
	// Runs recorded more than an hour late, because their node did not reach the database, do not count.
	{dispatcher.LockStatistics + "_final", true, db.DayMillis + 60*60_000},
}

const (
	// statisticsStep is the minimum step of a pass, so that a fleet without fires seldom writes.
	statisticsStep = 5 * 60_000
	// statisticsRuns is the maximum number of runs in a portion, unless one millisecond has more.
	statisticsRuns = 20_000
)

// RollUpStatistics counts a portion for each pass.
func (s *Store) RollUpStatistics(ctx context.Context, now time.Time) (rolled view.StatisticsRolled, err error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	if now, err = s.db.OrClock(ctx, now); err != nil {
		return rolled, err
	}
	for _, pass := range statisticsPasses {
		target := now.UnixMilli() - pass.lag
		target -= target % statisticsStep
		at, err := dispatch.Cursor(ctx, s.db.Read, pass.cursor)
		if err != nil {
			return rolled, err
		}
		if at >= target && at != 0 {
			continue
		}
		more, counted, err := s.countPortion(ctx, pass, target, nil, now)
		if s.dispatch.OfStored(ctx, err) {
			more, counted, err = s.countPortionOfMost(ctx, pass, target, now)
		}
		if err != nil {
			return rolled, fmt.Errorf("count runs of statistics (%s): %w", pass.cursor, err)
		}
		rolled.More = rolled.More || more
		rolled.Portions += counted
	}
	more, err := s.noteFailures(ctx, now)
	rolled.More = rolled.More || more
	return rolled, err
}

// countPortion counts the next portion of a pass before target, without some apps, and reports whether more follow.
func (s *Store) countPortion(ctx context.Context, pass statisticsPass, target int64, without []int64, now time.Time) (
	more bool, counted int, err error,
) {
	err = s.dispatch.Change(ctx, input.Change{Now: now}, func(ctx context.Context, t *dispatch.Tx) error {
		more, counted = false, 0
		from, to, err := nextPortion(ctx, t, pass, target)
		if err != nil || from >= target {
			return err
		}
		if err := t.Exec(ctx, countRuns(` AND NOT j.app_id`+t.In(5)), from, to, db.Day(from), pass.final,
			dispatch.List(t, without)); err != nil {
			return err
		}
		if pass.final && to == db.Day(to) {
			// Counts of the first pass for the day, and expired days. $1 the end of the day, $2 the first kept day
			const closed = `DELETE FROM run_statistics WHERE day < $1 AND NOT final OR day < $2`
			if err := t.Exec(ctx, closed, to, to-view.StatisticsKept.Milliseconds()); err != nil {
				return err
			}
		}
		more, counted = to < target, 1
		// $1 name, $2 up to when
		return t.Exec(ctx, `UPDATE locks SET cursor = $2 WHERE name = $1`, pass.cursor, to)
	})
	return more, counted, err
}

// nextPortion returns the time of the next portion of a pass, and locks the cursor of the pass.
func nextPortion(ctx context.Context, t *dispatch.Tx, pass statisticsPass, target int64) (from, to int64, err error) {
	// $1 name, $2 the day of the first call
	const begin = `INSERT INTO locks AS l (name, holder, fence, locked_until, free_at, cursor) VALUES ($1, 0, 0, 0, 0, $2)
		ON CONFLICT (name) DO UPDATE SET cursor = excluded.cursor WHERE l.cursor = 0`
	if err := t.Exec(ctx, begin, pass.cursor, db.Day(t.At.UnixMilli())); err != nil {
		return 0, 0, err
	}
	// $1 name
	const of = `SELECT l.cursor FROM locks AS l WHERE l.name = $1`
	from, _, err = db.First(ctx, t, db.ScanInt, of+db.LockOf(t.ForUpdate(), "l"), pass.cursor)
	if err != nil || from >= target {
		return from, target, err
	}
	to, err = endOfPortion(ctx, t, from, target)
	return from, to, err
}

// errNotKept ends a transaction that only tests whether it would succeed.
var errNotKept = errors.New("the transaction was a trial")

// countPortionOfMost counts a portion that cannot be counted as a whole: it finds the apps with runs that make it fail,
// sets them aside, and counts the others. Runs left out are not counted later.
func (s *Store) countPortionOfMost(ctx context.Context, pass statisticsPass, target int64, now time.Time) (
	more bool, counted int, err error,
) {
	apps, err := db.Collect(ctx, s.db.Read, db.ScanText, `SELECT name FROM apps ORDER BY id`)
	if err != nil {
		return false, 0, err
	}
	var bad []int64
	err = dispatch.InParts(ctx, s.dispatch.OfStored, apps, func(part []string) error {
		ids := make([]int64, len(part))
		for i, app := range part {
			ids[i] = run.AppID(app)
		}
		err := s.dispatch.Change(ctx, input.Change{Now: now}, func(ctx context.Context, t *dispatch.Tx) error {
			from, to, err := nextPortion(ctx, t, pass, target)
			if err == nil && from < target {
				err = t.Exec(ctx, countRuns(` AND j.app_id`+t.In(5)), from, to, db.Day(from), pass.final, dispatch.List(t, ids))
			}
			return cmp.Or(err, errNotKept)
		})
		if errors.Is(err, errNotKept) {
			return nil
		}
		return err
	}, func(app string, why error) error {
		bad = append(bad, run.AppID(app))
		return s.dispatch.SetAppAside(ctx, dispatcher.WorkStatistics, app, why, now)
	})
	if err != nil {
		return false, 0, err
	}
	return s.countPortion(ctx, pass, target, bad, now)
}

// endOfPortion returns where a portion ends: it has a bounded number of runs and lies in one day.
func endOfPortion(ctx context.Context, t *dispatch.Tx, from, target int64) (int64, error) {
	to := min(target, db.Day(from)+db.DayMillis)
	// $1 from, $2 to, $3 how many runs
	const (
		inTime = `SELECT r.scheduled_at FROM runs AS r WHERE r.scheduled_at >= $1 AND r.scheduled_at < $2
			ORDER BY r.scheduled_at LIMIT 1 OFFSET $3`
		late = `SELECT r.ended_at FROM runs AS r WHERE r.ended_at >= $1 AND r.ended_at < $2
			AND r.ended_at - r.scheduled_at >= 86400000 ORDER BY r.ended_at LIMIT 1 OFFSET $3`
	)
	for _, next := range []string{inTime, late} {
		at, found, err := db.First(ctx, t, db.ScanInt, next, from, to, statisticsRuns)
		if err != nil {
			return to, err
		}
		if found {
			to = max(at, from+1)
		}
	}
	return to, nil
}

// countRuns adds the runs and misfires of a portion to the counts of its day. For fires that did not wait as their
// job asked, it counts how late the first attempt began.
// $1 from, $2 to, $3 day, $4 whether the count is final, $5 apps of the condition, which begins with AND
func countRuns(ofApps string) string {
	return `INSERT INTO run_statistics AS s (app_id, day, final, state, runs, attempts, started, late_sum, late_most)
	SELECT j.app_id, CAST($3 AS BIGINT), CAST($4 AS BOOLEAN), c.state, sum(c.runs), sum(c.attempts), sum(c.started), sum(c.late_sum),
		max(c.late_most) FROM (
		` + countedRuns + `r.scheduled_at >= $1 AND r.scheduled_at < $2 AND r.ended_at - r.scheduled_at < 86400000) AS r
			GROUP BY r.job_id, r.state
		UNION ALL ` + countedRuns + `r.ended_at >= $1 AND r.ended_at < $2 AND r.ended_at - r.scheduled_at >= 86400000) AS r
			GROUP BY r.job_id, r.state
		UNION ALL SELECT m.job_id, '', m.count, 0, 0, 0, 0 FROM misfires AS m
			WHERE m.from_at >= $1 AND m.from_at < $2 AND m.decided_at - m.from_at < 86400000
		UNION ALL SELECT m.job_id, '', m.count, 0, 0, 0, 0 FROM misfires AS m
			WHERE m.decided_at >= $1 AND m.decided_at < $2 AND m.decided_at - m.from_at >= 86400000
	) AS c JOIN jobs AS j ON j.id = c.job_id WHERE j.part_of = 0` + ofApps + `
	GROUP BY j.app_id, c.state ORDER BY j.app_id, c.state
	ON CONFLICT (day, app_id, final, state) DO UPDATE SET runs = s.runs + excluded.runs, attempts = s.attempts + excluded.attempts,
		started = s.started + excluded.started, late_sum = s.late_sum + excluded.late_sum,
		late_most = CASE WHEN s.late_most > excluded.late_most THEN s.late_most ELSE excluded.late_most END`
}

// countedRuns counts the runs selected by the query after it, by job and state.
const countedRuns = `SELECT r.job_id, r.state, count(*) AS runs, sum(r.attempt) AS attempts,
		sum(CASE WHEN r.late IS NULL THEN 0 ELSE 1 END) AS started, coalesce(sum(r.late), 0) AS late_sum, coalesce(max(r.late), 0) AS late_most
	FROM (SELECT r.job_id, coalesce(r.state, 'succeeded') AS state, r.attempt,
			CASE WHEN r.kind = 1 AND r.waited IS NULL THEN ` + firstStart + ` - r.scheduled_at END AS late
		FROM runs AS r LEFT JOIN attempts AS a ON r.attempt > 1 AND a.scheduled_at = r.scheduled_at AND a.trigger_id = r.trigger_id
			AND a.kind = r.kind AND a.attempt = 1
		WHERE r.kind < 16 AND `

// Counts of single jobs would cost each fire a write. So these statistics read a bounded number of rows by the index of
// the job, only when somebody asks.

// JobStatistics returns the statistics of the latest ended runs of a job.
func (s *Store) JobStatistics(ctx context.Context, app, job string, from, to time.Time) (found view.JobStatistics, err error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	found = view.JobStatistics{From: db.Instant(from.UnixMilli()), To: db.Instant(to.UnixMilli()), Hours: []view.HourStatistics{}}
	id, err := s.JobKey(ctx, app, job)
	if err != nil {
		return found, err
	}
	type endedRun struct {
		scheduled  int64
		state      run.State
		wait, took *int64
	}
	latest := `ORDER BY r.scheduled_at DESC LIMIT ` + strconv.Itoa(view.MostExaminedRuns+1)
	// $1 job, $2 from, $3 to
	ended := `SELECT r.scheduled_at, coalesce(r.state, 'succeeded'), CASE WHEN r.kind = 1 THEN ` + firstStart + ` - r.scheduled_at END,
			r.started_ms
		FROM (SELECT * FROM runs AS r WHERE r.job_id = $1 AND r.scheduled_at >= $2 AND r.scheduled_at <= $3 AND r.kind < 16 ` + latest + `) AS r
		LEFT JOIN attempts AS a ON r.attempt > 1 AND a.scheduled_at = r.scheduled_at AND a.trigger_id = r.trigger_id
			AND a.kind = r.kind AND a.attempt = 1 ORDER BY r.scheduled_at DESC`
	runs, err := db.ReadRows(ctx, s.db.Read, func(r *endedRun) []any { return []any{&r.scheduled, &r.state, &r.wait, &r.took} },
		ended, id, from.UnixMilli(), to.UnixMilli())
	if err != nil {
		return found, fmt.Errorf("read the runs of job %s: %w", input.Echo(app+"/"+job), err)
	}
	if len(runs) > view.MostExaminedRuns {
		runs = runs[:view.MostExaminedRuns]
		found.From = db.Instant(runs[len(runs)-1].scheduled)
	}
	hours := map[int64]*view.HourStatistics{}
	hour := func(at int64) *view.HourStatistics {
		at -= at % time.Hour.Milliseconds()
		if hours[at] == nil {
			hours[at] = &view.HourStatistics{At: db.Instant(at), Runs: map[run.State]int64{}}
		}
		return hours[at]
	}
	var waits, durations []input.Duration
	for _, r := range runs {
		hour(r.scheduled).Runs[r.state]++
		if r.wait != nil {
			waits = append(waits, db.Millis(*r.wait))
		}
		if r.took != nil {
			durations = append(durations, db.Millis(*r.took))
		}
	}
	found.Waits, found.Durations = view.PercentilesOf(waits), view.PercentilesOf(durations)
	missed := `SELECT r.from_at, r.count FROM misfires AS r WHERE r.job_id = $1 AND r.from_at >= $2 AND r.from_at <= $3
		ORDER BY r.from_at DESC LIMIT ` + strconv.Itoa(view.MostExaminedRuns)
	err = db.EachRow(ctx, s.db.Read, func(row db.Scanner) error {
		var at, count int64
		err := row.Scan(&at, &count)
		hour(at).Misfires += count
		return err
	}, missed, id, found.From.UnixMilli(), to.UnixMilli())
	for _, at := range slices.Sorted(maps.Keys(hours)) {
		found.Hours = append(found.Hours, *hours[at])
	}
	return found, err
}
