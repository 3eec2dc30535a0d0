package reads

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/definitions"
)

// Buckets of objective_counts, in milliseconds, and how long they are kept.
const (
	objectiveBucket = 5 * 60 * 1000

	keptBuckets = 73 * definitions.ObjectiveHour // longer than the longest of dispatcher.ObjectiveSpans
	keptHours   = int64(dispatcher.ObjectiveWindow/time.Millisecond) + definitions.ObjectiveHour
)

// objectiveBand is an expression for the band of a bucket c before the end of the counts of a job AS o: the time
// between two neighbors of dispatcher.ObjectiveSpans, or the window; see latestBand and windowBand. NULL: no band.
func objectiveBand() string {
	band := fmt.Sprintf(`CASE WHEN c.minutes = 60 THEN CASE WHEN c.from_at >= o.checked_to - CAST(%d AS BIGINT) THEN %d END`,
		dispatcher.ObjectiveWindow.Milliseconds(), windowBand)
	for n, span := range dispatcher.ObjectiveSpans() {
		band += fmt.Sprintf(`
		WHEN c.from_at >= o.checked_to - CAST(%d AS BIGINT) THEN %d`, span.Milliseconds(), latestBand+n)
	}
	return band + ` END`
}

// The bands: the window, and the shortest of dispatcher.ObjectiveSpans, followed by the longer ones.
const (
	windowBand = iota
	latestBand
)

// MeasuredOf returns the counts of jobs that have an objective, ordered by name. jobs is a WITH clause with their ids
// in b. It reads the buckets c that counted selects; empty: all.
func MeasuredOf(ctx context.Context, q db.Querier, jobs, counted string, args ...any) (all []MeasuredJob, err error) {
	query := jobs + ` SELECT j.id, a.name, j.name, j.objective, o.counted_from, o.checked_to,
		(SELECT count(*) FROM objective_pending AS p WHERE p.job_id = o.job_id), c.band, c.good, c.late, c.missed
	FROM (SELECT o.job_id, ` + objectiveBand() + ` AS band, sum(c.good) AS good, sum(c.late) AS late, sum(c.missed) AS missed
		FROM b JOIN objectives AS o ON o.job_id = b.id LEFT JOIN objective_counts AS c ON c.job_id = o.job_id` + counted + `
		GROUP BY o.job_id, 2) AS c
	JOIN objectives AS o ON o.job_id = c.job_id JOIN jobs AS j ON j.id = c.job_id JOIN apps AS a ON a.id = j.app_id
	WHERE j.objective <> '' AND j.deleted_at IS NULL ORDER BY a.name, j.name, j.id, c.band`
	bands, err := db.Collect(ctx, q, scanMeasured, query, args...)
	if err != nil {
		return nil, err
	}
	for _, band := range bands {
		if len(all) == 0 || all[len(all)-1].ID != band.ID {
			all = append(all, MeasuredJob{ID: band.ID, Job: band.Job, ObjectiveMeasured: band.ObjectiveMeasured})
			all[len(all)-1].Spans = make([]dispatcher.ObjectiveCounts, len(dispatcher.ObjectiveSpans()))
		}
		all[len(all)-1].add(band)
	}
	return all, nil
}

// LatestCounts selects the buckets c from which MeasuredOf computes whether an error budget burns.
func LatestCounts() string {
	return fmt.Sprintf(` AND c.minutes = 5 AND c.from_at >= o.checked_to - CAST(%d AS BIGINT)`, dispatcher.ObjectiveBurnSpan.Milliseconds())
}

// MeasuredJob is a job with its counts.
type MeasuredJob struct {
	ID  int64
	Job dispatcher.Job
	dispatcher.ObjectiveMeasured
}

// measuredBand is a job with its counts in a band; nil: in no band.
type measuredBand struct {
	MeasuredJob
	band *int
	dispatcher.ObjectiveCounts
}

func scanMeasured(row db.Scanner) (b measuredBand, err error) {
	var good, late, missed *int64
	err = row.Scan(&b.ID, &b.Job.App, &b.Job.Name, definitions.ObjectiveColumn(&b.Job.Objective), db.InstantColumn(&b.From),
		db.InstantColumn(&b.To), &b.Pending, &b.band, &good, &late, &missed)
	if err != nil {
		return b, err
	}
	if b.Job.Objective == nil {
		return b, fmt.Errorf("job %s/%s: its stored objective cannot be read", b.Job.App, b.Job.Name)
	}
	if from := b.To.Add(-dispatcher.ObjectiveWindow); from.After(b.From) {
		b.From = from
	}
	if b.band != nil {
		b.ObjectiveCounts = dispatcher.ObjectiveCounts{Good: *good, Late: *late, Missed: *missed}
	}
	return b, nil
}

// add adds the counts of a band to all spans that include it.
func (j *MeasuredJob) add(of measuredBand) {
	switch {
	case of.band == nil:
	case *of.band == windowBand:
		j.Window = of.ObjectiveCounts
	default:
		for n := *of.band - latestBand; n < len(j.Spans); n++ {
			j.Spans[n].Good += of.Good
			j.Spans[n].Late += of.Late
			j.Spans[n].Missed += of.Missed
		}
	}
}

// ObjectiveStatus returns the status of a job's objective.
func (s *Store) ObjectiveStatus(ctx context.Context, app, job string) (dispatcher.ObjectiveStatus, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	// $1 app, $2 name
	const named = `WITH b AS MATERIALIZED (SELECT id FROM jobs WHERE app_id = $1 AND name = $2 AND deleted_at IS NULL)`
	found, err := MeasuredOf(ctx, s.db.Read, named, ``, run.AppID(app), job)
	if err != nil {
		return dispatcher.ObjectiveStatus{}, err
	}
	if len(found) > 0 {
		return found[0].Status(found[0].Job), nil
	}
	if _, err := s.definitions.FindJob(ctx, s.db.Read, app, job, ""); errors.Is(err, dispatcher.ErrNotFound) {
		return dispatcher.ObjectiveStatus{}, err
	}
	return dispatcher.ObjectiveStatus{}, fmt.Errorf("job %s has no objective; declare objective in its definition: %w",
		input.Echo(app+"/"+job), dispatcher.ErrNotFound)
}

// ObjectiveStatuses returns a page of the jobs of an app that have an objective, by name.
func (s *Store) ObjectiveStatuses(ctx context.Context, app string, page input.Page) ([]dispatcher.ObjectiveStatus, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	if _, err := definitions.ReadApp(ctx, s.db.Read, app, ""); err != nil {
		return nil, err
	}
	// $1 app, $2 last name of the page before, $3 limit. The page is chosen before anything is counted.
	const listed = `WITH b AS MATERIALIZED (SELECT id FROM jobs
		WHERE app_id = $1 AND name > $2 AND objective <> '' AND deleted_at IS NULL ORDER BY name LIMIT $3)`
	found, err := MeasuredOf(ctx, s.db.Read, listed, ``, run.AppID(app), page.Cursor, page.Limit)
	statuses := make([]dispatcher.ObjectiveStatus, len(found))
	for i, one := range found {
		statuses[i] = one.Status(one.Job)
	}
	return statuses, err
}
