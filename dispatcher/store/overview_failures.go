package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/carillon-dev/carillon/dispatcher"
)

// examinedFailures is how many of the latest failures of all apps are looked through for those of some apps.
const examinedFailures = 5_000

// failed looks for the runs that failed last, by runs_failed. If other apps fail so often that too few of them are those of
// the wanted apps, it looks for these job by job.
func (l *looker) failed(ctx context.Context) error {
	args := statementArgs{l.since.UnixMilli()}
	const latest = ` AND r.kind < 16 AND r.ended_at >= $1 ORDER BY r.ended_at DESC`
	picked := deadRuns + latest + ` LIMIT ` + strconv.Itoa(shownMost)
	if len(l.apps) > 0 {
		picked = `SELECT r.* FROM (` + deadRuns + latest + ` LIMIT ` + strconv.Itoa(examinedFailures) + `) AS r
			JOIN jobs AS of ON of.id = r.job_id WHERE 1 = 1` + l.ofApps(`of.app_id`, &args) + `
			ORDER BY r.ended_at DESC LIMIT ` + strconv.Itoa(shownMost)
	}
	runs, err := collect(ctx, l.read, scanRun, runQuery(picked), args...)
	if err != nil {
		return err
	}
	if len(l.apps) > 0 && len(runs) < shownMost {
		if runs, err = l.failedOfEach(ctx, runs); err != nil {
			return fmt.Errorf("job by job: %w", err)
		}
	}
	slices.SortStableFunc(runs, func(a, b dispatcher.Run) int { return zeroable(b.EndedAt).Compare(zeroable(a.EndedAt)) })
	l.found.Failed = begin(runs)
	return nil
}

// failedOfEach looks for failures job by job, unless all of them are found already.
func (l *looker) failedOfEach(ctx context.Context, found []dispatcher.Run) ([]dispatcher.Run, error) {
	// $1 since when, $2 how many are looked through
	const further = `SELECT r.ended_at FROM runs AS r WHERE ` + isDead + ` AND r.kind < 16 AND r.ended_at >= $1
		ORDER BY r.ended_at DESC LIMIT 1 OFFSET $2`
	if _, more, err := first(ctx, l.read, scanInt, further, l.since.UnixMilli(), examinedFailures); err != nil || !more {
		return found, err
	}
	var args statementArgs
	jobs, err := collect(ctx, l.read, scanInt, `SELECT j.id FROM jobs AS j WHERE 1 = 1`+l.ofApps(`j.app_id`, &args)+` ORDER BY j.id`, args...)
	if err != nil || len(jobs) == 0 {
		return found, err
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
		if job.burn.Burns && len(burn) < shownMost {
			burn = append(burn, job.id)
		}
	}
	var statuses []dispatcher.ObjectiveStatus
	if len(burn) > 0 {
		if measured, err = l.measured(ctx, burn, ``); err != nil {
			return err
		}
		for _, job := range measured {
			statuses = append(statuses, job.status)
		}
	}
	l.found.Objectives = begin(statuses)
	return nil
}

// measured reads what was counted of jobs, by the buckets that counted selects.
func (l *looker) measured(ctx context.Context, jobs []int64, counted string) ([]measuredJob, error) {
	// From $1 on: ids
	read := l.rows(0, 1, "", idColumns...) + objectiveOf(`b JOIN jobs AS j ON j.id = b.id`, counted, ``) + ` ORDER BY a.name, j.name`
	return collect(ctx, l.read, scanMeasured, read, l.batch(jobs)...)
}
