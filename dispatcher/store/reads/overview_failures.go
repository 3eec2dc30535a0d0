package reads

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/definitions"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

// examinedFailures is how many of the latest failures of all apps are examined.
const examinedFailures = 5_000

// failed finds the latest failed runs: the latest of each app, then the previous one of each, and so on. If one app has
// too many of the latest failures, the others are found through the failures noted by the handler, and those of some
// apps job by job.
func (l *looker) failed(ctx context.Context) error {
	if err := l.readFailures(ctx); err != nil {
		return err
	}
	var keys []run.Key
	latest := byTurns(l.failures, func(f failure) int64 { return f.app })
	for _, one := range latest[:min(len(latest), shownMost)] {
		keys = append(keys, one.key)
	}
	var ofJobs []run.Run
	if l.furtherFailures && len(l.apps) > 0 && len(keys) < shownMost {
		var w db.Conditions
		w.Add("r.kind < 16 AND r.scheduled_at >= %s", l.since.UnixMilli())
		args := definitions.StatementArgs(w.Args)
		page := l.ofJobs(`1 = 1`+l.ofApps(`j.app_id`, &args)) + l.db.DeadOfEach(w.Text, latestRuns+` LIMIT `+strconv.Itoa(shownMost))
		var err error
		if ofJobs, err = db.Collect(ctx, l.db.Read, scanRun, RunQuery(page), args...); err != nil {
			return fmt.Errorf("job by job: %w", err)
		}
	}
	args := definitions.StatementArgs{l.since.UnixMilli()}
	noted, err := db.Collect(ctx, l.db.Read, dispatch.ScanRunKey, `SELECT f.scheduled_at, f.trigger_id, f.kind FROM app_failures AS f
		WHERE f.ended_at >= $1`+l.ofApps(`f.app_id`, &args)+` ORDER BY f.ended_at DESC LIMIT `+strconv.Itoa(shownMost), args...)
	if err != nil {
		return fmt.Errorf("by what was noted: %w", err)
	}
	var found []run.Run
	if keys = append(keys, noted...); len(keys) > 0 {
		if found, err = db.Collect(ctx, l.db.Read, scanRun, RunQuery(l.endedOfKeys()), l.keysBatch(keys)...); err != nil {
			return err
		}
	}
	// Noted failures may have been retried since.
	found = slices.DeleteFunc(found, func(r run.Run) bool { return !slices.Contains(repeat.DeadLetterStates, r.State) })
	found = append(found, ofJobs...)
	slices.SortStableFunc(found, laterEnd)
	found = slices.CompactFunc(found, func(a, b run.Run) bool { return a.ID == b.ID })
	l.found.Failed = begin(byTurns(found, func(r run.Run) string { return r.App }))
	slices.SortStableFunc(l.found.Failed.Items, laterEnd)
	return nil
}

// failure is one of the latest failures.
type failure struct {
	key        run.Key
	job        int64
	endedAt    time.Time
	class      run.Class
	httpStatus int
	error      string // if a secret caused it
	app        int64
	deleted    bool // its job is deleted
}

// readFailures reads the latest failures of the apps by runs_failed, latest first, and their jobs separately: otherwise
// PostgreSQL would read through all jobs, and SQLite search thrice for each. It leaves out failures of purged jobs.
func (l *looker) readFailures(ctx context.Context) error {
	// $1 since when. One more than are looked through tells whether there are further ones.
	latest := `SELECT r.scheduled_at, r.trigger_id, r.kind, r.job_id, r.ended_at, coalesce(r.class, ''), r.http_status,
			CASE WHEN ` + isCredential + ` THEN coalesce(r.error, '') ELSE '' END FROM runs AS r
		WHERE ` + db.IsDead + ` AND r.kind < 16 AND r.ended_at >= $1 ORDER BY r.ended_at DESC LIMIT ` + strconv.Itoa(examinedFailures+1)
	failures, err := db.ReadRows(ctx, l.db.Read, func(f *failure) []any {
		return db.KeyRefs(&f.key, &f.job, db.InstantColumn(&f.endedAt), &f.class, &f.httpStatus, &f.error)
	}, latest, l.since.UnixMilli())
	if err != nil || len(failures) == 0 {
		return err
	}
	l.furtherFailures = len(failures) > examinedFailures
	failures = failures[:min(len(failures), examinedFailures)]
	jobs := make([]int64, len(failures))
	for i, f := range failures {
		jobs[i] = f.job
	}
	slices.Sort(jobs)
	type job struct {
		id, app int64
		deleted bool
	}
	// From $1 on: jobs
	ofJobs := l.db.Rows(0, 1, "", db.IDColumns...) + ` SELECT j.id, j.app_id, j.deleted_at IS NOT NULL FROM b JOIN jobs AS j ON j.id = b.id`
	found, err := db.ReadRows(ctx, l.db.Read, func(j *job) []any { return []any{&j.id, &j.app, &j.deleted} },
		ofJobs, l.db.Batch(slices.Compact(jobs))...)
	if err != nil {
		return err
	}
	byID := make(map[int64]job, len(found))
	for _, j := range found {
		byID[j.id] = j
	}
	for _, f := range failures {
		j, known := byID[f.job]
		if f.app, f.deleted = j.app, j.deleted; known && (len(l.apps) == 0 || slices.Contains(l.apps, f.app)) {
			l.failures = append(l.failures, f)
		}
	}
	return nil
}

// laterEnd orders runs by their ends, latest first.
func laterEnd(a, b run.Run) int {
	return cmp.Or(db.Zeroable(b.EndedAt).Compare(db.Zeroable(a.EndedAt)), cmp.Compare(a.ID, b.ID))
}

// byTurns orders items in turns: the first of each app, then the second of each, and so on.
func byTurns[T any, A comparable](items []T, app func(T) A) []T {
	type placed struct {
		item  T
		place int
	}
	all, places := make([]placed, len(items)), map[A]int{}
	for i, item := range items {
		all[i] = placed{item, places[app(item)]}
		places[app(item)]++
	}
	slices.SortStableFunc(all, func(a, b placed) int { return cmp.Compare(a.place, b.place) })
	sorted := make([]T, len(all))
	for i, one := range all {
		sorted[i] = one.item
	}
	return sorted
}

const (
	// burningCounts is how many of the latest counts of late or missed fires are examined. A budget burns only if fires
	// of the last half hour were late or missed: so many jobs may burn at once, with seven counts each.
	burningCounts = 20_000
	// burning is how many of these jobs are checked for their error budgets, and burningAtOnce how many are read at
	// once: once enough are found to show, the others are not read.
	burning       = 500
	burningAtOnce = 100
)

// objectives finds error budgets that burn too fast: of jobs with late or missed fires in their latest counts.
func (l *looker) objectives(ctx context.Context) error {
	args := definitions.StatementArgs{l.at.Add(-dispatcher.ObjectiveBurnSpan).UnixMilli()}
	mine := "" // selects the jobs of these apps, so that late jobs of others do not use up the limit
	if len(l.apps) > 0 {
		mine = ` AND c.job_id IN (SELECT o.job_id FROM objectives AS o JOIN jobs AS j ON j.id = o.job_id WHERE 1 = 1` +
			l.ofApps(`j.app_id`, &args) + `)`
	}
	bad := `SELECT j.id FROM (SELECT DISTINCT c.job_id FROM (SELECT c.job_id FROM objective_counts AS c
		WHERE c.minutes = 5 AND c.late + c.missed > 0 AND c.from_at >= $1` + mine + `
		ORDER BY c.from_at DESC LIMIT ` + strconv.Itoa(burningCounts) + `) AS c) AS c CROSS JOIN jobs AS j
		WHERE j.id = c.job_id AND j.deleted_at IS NULL ORDER BY j.id LIMIT ` + strconv.Itoa(burning)
	jobs, err := db.Collect(ctx, l.db.Read, db.ScanInt, bad, args...)
	if err != nil || len(jobs) == 0 {
		l.found.Objectives = begin[dispatcher.ObjectiveStatus](nil)
		return err
	}
	var burn []int64
	for some := range slices.Chunk(jobs, burningAtOnce) {
		measured, err := l.measured(ctx, some, LatestCounts())
		if err != nil {
			return err
		}
		for _, job := range measured {
			if job.Burn(job.Job).Burns && len(burn) < shownMost {
				burn = append(burn, job.ID)
			}
		}
		if len(burn) == shownMost {
			break
		}
	}
	var statuses []dispatcher.ObjectiveStatus
	if len(burn) > 0 {
		measured, err := l.measured(ctx, burn, ``)
		if err != nil {
			return err
		}
		for _, job := range measured {
			statuses = append(statuses, job.Status(job.Job))
		}
	}
	l.found.Objectives = begin(statuses)
	return nil
}

// measured reads the counts of jobs in the buckets that counted selects.
func (l *looker) measured(ctx context.Context, jobs []int64, counted string) ([]MeasuredJob, error) {
	// From $1 on: ids
	return MeasuredOf(ctx, l.db.Read, l.db.Rows(0, 1, "", db.IDColumns...), counted, l.db.Batch(jobs)...)
}
