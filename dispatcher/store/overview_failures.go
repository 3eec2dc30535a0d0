package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/carillon-dev/carillon/dispatcher"
)

// examinedFailures is how many of the latest failures of all apps are looked through.
const examinedFailures = 5_000

// failed looks for the runs that failed last: of each app the latest, then of each the one before, and so on. If one app fails so
// often that too many of the latest are its own, the others are found by what the handler noted of them, and those of some apps
// job by job.
func (l *looker) failed(ctx context.Context) error {
	keys, err := l.latestFailures(ctx)
	if err != nil {
		return err
	}
	var ofJobs []dispatcher.Run
	if len(l.apps) > 0 && len(keys) < shownMost {
		if ofJobs, err = l.failedOfEach(ctx); err != nil {
			return fmt.Errorf("job by job: %w", err)
		}
	}
	noted, err := l.notedFailures(ctx)
	if err != nil {
		return fmt.Errorf("by what was noted: %w", err)
	}
	found, err := l.failuresOf(ctx, append(keys, noted...))
	if err != nil {
		return err
	}
	l.found.Failed = begin(fairShares(append(found, ofJobs...)))
	slices.SortStableFunc(l.found.Failed.Items, laterEnd)
	return nil
}

// latestFailures returns the keys of the latest failures, by runs_failed, in the order of their places among those of their apps.
// Apps are read in a statement of their own: PostgreSQL would else read through all jobs, and SQLite look three times for each.
func (l *looker) latestFailures(ctx context.Context) ([]fireKey, error) {
	type failure struct {
		fireKey
		job   int64
		place int
	}
	// $1 since when
	latest := `SELECT r.scheduled_at, r.trigger_id, r.kind, r.job_id FROM runs AS r
		WHERE ` + isDead + ` AND r.kind < 16 AND r.ended_at >= $1 ORDER BY r.ended_at DESC LIMIT ` + strconv.Itoa(examinedFailures)
	failures, err := collect(ctx, l.read, func(row scanner) (f failure, err error) {
		err = row.Scan(&f.at, &f.trigger, &f.kind, &f.job)
		return f, err
	}, latest, l.since.UnixMilli())
	if err != nil || len(failures) == 0 {
		return nil, err
	}
	jobs := make([]int64, len(failures))
	for i, f := range failures {
		jobs[i] = f.job
	}
	slices.Sort(jobs)
	apps, places := map[int64]int64{}, map[int64]int{}
	// From $1 on: jobs
	ofJobs := l.rows(0, 1, "", idColumns...) + ` SELECT j.id, j.app_id FROM b JOIN jobs AS j ON j.id = b.id`
	if _, err := collect(ctx, l.read, func(row scanner) (struct{}, error) {
		var job, app int64
		err := row.Scan(&job, &app)
		apps[job] = app
		return struct{}{}, err
	}, ofJobs, l.batch(slices.Compact(jobs))...); err != nil {
		return nil, err
	}
	failures = slices.DeleteFunc(failures, func(f failure) bool {
		app, found := apps[f.job]
		return !found || len(l.apps) > 0 && !slices.Contains(l.apps, app)
	})
	for i, f := range failures {
		failures[i].place = places[apps[f.job]]
		places[apps[f.job]]++
	}
	slices.SortStableFunc(failures, func(a, b failure) int { return cmp.Compare(a.place, b.place) })
	var keys []fireKey
	for _, f := range failures[:min(len(failures), shownMost)] {
		keys = append(keys, f.fireKey)
	}
	return keys, nil
}

// notedFailures returns the keys of the latest failures that the handler noted, one of each app.
func (l *looker) notedFailures(ctx context.Context) ([]fireKey, error) {
	args := statementArgs{l.since.UnixMilli()}
	return collect(ctx, l.read, scanFireKey, `SELECT f.scheduled_at, f.trigger_id, f.kind FROM app_failures AS f WHERE f.ended_at >= $1`+
		l.ofApps(`f.app_id`, &args)+` ORDER BY f.ended_at DESC LIMIT `+strconv.Itoa(shownMost), args...)
}

// fireKey is the key of a run in the history.
type fireKey struct{ at, trigger, kind int64 }

func scanFireKey(row scanner) (k fireKey, err error) {
	err = row.Scan(&k.at, &k.trigger, &k.kind)
	return k, err
}

// failuresOf returns the runs of keys that are in the history and failed.
func (l *looker) failuresOf(ctx context.Context, keys []fireKey) ([]dispatcher.Run, error) {
	var at, trigger, kind []int64
	for _, key := range keys {
		at, trigger, kind = append(at, key.at), append(trigger, key.trigger), append(kind, key.kind)
	}
	picked := l.rows(0, 1, "", fireKeyColumns...) + l.endedOfKeys()
	runs, err := collect(ctx, l.read, scanRun, runQuery(picked), l.batch(at, trigger, kind)...)
	// What was noted may have been retried since.
	return slices.DeleteFunc(runs, func(r dispatcher.Run) bool { return !slices.Contains(dispatcher.DeadLetterStates, r.State) }), err
}

// laterEnd orders runs by their ends, the latest first.
func laterEnd(a, b dispatcher.Run) int {
	return cmp.Or(zeroable(b.EndedAt).Compare(zeroable(a.EndedAt)), cmp.Compare(a.ID, b.ID))
}

// fairShares orders different runs such that the latest of each app come first, then of each the one before, and so on.
func fairShares(runs []dispatcher.Run) []dispatcher.Run {
	slices.SortStableFunc(runs, laterEnd)
	runs = slices.CompactFunc(runs, func(a, b dispatcher.Run) bool { return a.ID == b.ID })
	type placed struct {
		dispatcher.Run
		place int
	}
	all, places := make([]placed, len(runs)), map[string]int{}
	for i, run := range runs {
		all[i] = placed{run, places[run.App]}
		places[run.App]++
	}
	slices.SortStableFunc(all, func(a, b placed) int { return cmp.Compare(a.place, b.place) })
	for i, one := range all {
		runs[i] = one.Run
	}
	return runs
}

// failedOfEach looks for failures job by job, unless all of them are among the examined ones.
func (l *looker) failedOfEach(ctx context.Context) ([]dispatcher.Run, error) {
	// $1 since when, $2 how many are looked through
	const further = `SELECT r.ended_at FROM runs AS r WHERE ` + isDead + ` AND r.kind < 16 AND r.ended_at >= $1
		ORDER BY r.ended_at DESC LIMIT 1 OFFSET $2`
	if _, more, err := first(ctx, l.read, scanInt, further, l.since.UnixMilli(), examinedFailures); err != nil || !more {
		return nil, err
	}
	var args statementArgs
	jobs, err := collect(ctx, l.read, scanInt, `SELECT j.id FROM jobs AS j WHERE 1 = 1`+l.ofApps(`j.app_id`, &args)+` ORDER BY j.id`, args...)
	if err != nil || len(jobs) == 0 {
		return nil, err
	}
	var w conditions
	w.add("r.kind < 16 AND r.scheduled_at >= %s", l.since.UnixMilli())
	page := l.rows(0, len(w.args)+1, "", idColumns...) + l.deadOfEach(w.text, latestRuns+` LIMIT `+strconv.Itoa(shownMost))
	return collect(ctx, l.read, scanRun, runQuery(page), append(w.args, l.batch(jobs)...)...)
}

// burning is how many jobs whose fires were late or missed lately are looked at for their error budgets.
const burning = 500

// objectives looks for error budgets that burn too fast: of jobs whose latest counts have fires that were not in time.
func (l *looker) objectives(ctx context.Context) error {
	args := statementArgs{l.at.Add(-dispatcher.ObjectiveBurnSpan).UnixMilli()}
	bad := `SELECT DISTINCT c.job_id FROM (SELECT c.job_id FROM objective_counts AS c JOIN jobs AS j ON j.id = c.job_id
		WHERE c.minutes = 5 AND c.late + c.missed > 0 AND c.from_at >= $1 AND j.deleted_at IS NULL` + l.ofApps(`j.app_id`, &args) + `
		ORDER BY c.from_at DESC LIMIT ` + strconv.Itoa(10*burning) + `) AS c ORDER BY c.job_id LIMIT ` + strconv.Itoa(burning)
	jobs, err := collect(ctx, l.read, scanInt, bad, args...)
	if err != nil || len(jobs) == 0 {
		l.found.Objectives = begin[dispatcher.ObjectiveStatus](nil)
		return err
	}
	measured, err := l.measured(ctx, jobs, latestCounts())
	if err != nil {
		return err
	}
	var burn []int64
	for _, job := range measured {
		if job.Burn(job.job).Burns && len(burn) < shownMost {
			burn = append(burn, job.id)
		}
	}
	var statuses []dispatcher.ObjectiveStatus
	if len(burn) > 0 {
		if measured, err = l.measured(ctx, burn, ``); err != nil {
			return err
		}
		for _, job := range measured {
			statuses = append(statuses, job.Status(job.job))
		}
	}
	l.found.Objectives = begin(statuses)
	return nil
}

// measured reads what was counted of jobs, by the buckets that counted selects.
func (l *looker) measured(ctx context.Context, jobs []int64, counted string) ([]measuredJob, error) {
	// From $1 on: ids
	return measuredOf(ctx, l.read, l.rows(0, 1, "", idColumns...), counted, l.batch(jobs)...)
}
