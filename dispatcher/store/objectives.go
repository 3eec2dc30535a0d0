package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// Buckets of objective_counts, in milliseconds, and how long they are kept.
const (
	objectiveBucket = 5 * 60 * 1000
	objectiveHour   = 60 * 60 * 1000
	keptBuckets     = 73 * objectiveHour // longer than the longest of dispatcher.ObjectiveSpans
	keptHours       = int64(dispatcher.ObjectiveWindow/time.Millisecond) + objectiveHour
)

// objectiveColumn is the empty text for no objective.
func objectiveColumn(o **dispatcher.Objective) any {
	return db.ConvertedColumn(o, func(text string) *dispatcher.Objective {
		var objective dispatcher.Objective
		if text == "" || json.Unmarshal([]byte(text), &objective) != nil {
			return nil
		}
		return &objective
	}, func(o *dispatcher.Objective) string {
		if o == nil {
			return ""
		}
		text, err := json.Marshal(o)
		if err != nil {
			panic(err) // a duration and a text always marshal
		}
		return string(text)
	})
}

// writeObjective lets the fires of a job with an objective be counted. With another bound than before they are counted
// again, as far back as the ledger and the window go. What is left of a job that has no objective any more is removed
// when it is next looked at.
func writeObjective(ctx context.Context, t *tx, job dispatcher.Job) error {
	if job.Objective == nil {
		return nil
	}
	from := max(t.now.Add(-dispatcher.ObjectiveWindow).UnixMilli(), job.CreatedAt.UnixMilli())
	// $1 job, $2 within, $3 beginning
	const put = `INSERT INTO objectives (job_id, within, counted_from, checked_to) VALUES ($1, $2, $3, $3)
		ON CONFLICT (job_id) DO UPDATE SET within = excluded.within, counted_from = excluded.counted_from,
			checked_to = excluded.checked_to, pending_after = 0 WHERE objectives.within <> excluded.within`
	changed, err := t.execute(ctx, put, job.Key(), db.ToMillis(job.Objective.Within), from-from%objectiveHour)
	if err == nil && changed > 0 {
		err = forgetCounts(ctx, t, job.Key())
	}
	if err != nil {
		return fmt.Errorf("objective of job %s/%s: %w", job.App, job.Name, err)
	}
	return nil
}

// forgetCounts removes what was counted of a job, and its cursors.
func forgetCounts(ctx context.Context, t *tx, job int64) error {
	for _, table := range []string{"objective_triggers", "objective_pending", "objective_counts"} {
		if _, err := t.ExecContext(ctx, `DELETE FROM `+table+` WHERE job_id = $1`, job); err != nil {
			return err
		}
	}
	return nil
}

// objectiveBand is an expression for the part of the time before what is counted of a job AS o in which a bucket c is: that between
// two neighbours of dispatcher.ObjectiveSpans, or the window, as latestBand and windowBand have it; NULL: it is in none.
func objectiveBand() string {
	band := fmt.Sprintf(`CASE WHEN c.minutes = 60 THEN CASE WHEN c.from_at >= o.checked_to - CAST(%d AS BIGINT) THEN %d END`,
		dispatcher.ObjectiveWindow.Milliseconds(), windowBand)
	for n, span := range dispatcher.ObjectiveSpans() {
		band += fmt.Sprintf(`
		WHEN c.from_at >= o.checked_to - CAST(%d AS BIGINT) THEN %d`, span.Milliseconds(), latestBand+n)
	}
	return band + ` END`
}

// The bands: that of the window, and that of the shortest of dispatcher.ObjectiveSpans, which those of the longer ones follow.
const (
	windowBand = iota
	latestBand
)

// measuredOf returns what was counted of jobs that have an objective, by their names. jobs is a WITH clause whose b has their ids. The
// buckets c that counted selects are read; empty: all.
func measuredOf(ctx context.Context, q db.Querier, jobs, counted string, args ...any) (all []measuredJob, err error) {
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
		if len(all) == 0 || all[len(all)-1].id != band.id {
			all = append(all, measuredJob{id: band.id, job: band.job, ObjectiveMeasured: band.ObjectiveMeasured})
			all[len(all)-1].Spans = make([]dispatcher.ObjectiveCounts, len(dispatcher.ObjectiveSpans()))
		}
		all[len(all)-1].add(band)
	}
	return all, nil
}

// latestCounts selects the buckets c by which measuredOf tells whether an error budget burns.
func latestCounts() string {
	return fmt.Sprintf(` AND c.minutes = 5 AND c.from_at >= o.checked_to - CAST(%d AS BIGINT)`, dispatcher.ObjectiveBurnSpan.Milliseconds())
}

// measuredJob is a job with what was counted of it.
type measuredJob struct {
	id  int64
	job dispatcher.Job
	dispatcher.ObjectiveMeasured
}

// measuredBand is a job with what was counted of it in a band; nil: in none.
type measuredBand struct {
	measuredJob
	band *int
	dispatcher.ObjectiveCounts
}

func scanMeasured(row db.Scanner) (b measuredBand, err error) {
	var good, late, missed *int64
	err = row.Scan(&b.id, &b.job.App, &b.job.Name, objectiveColumn(&b.job.Objective), db.InstantColumn(&b.From), db.InstantColumn(&b.To),
		&b.Pending, &b.band, &good, &late, &missed)
	if err != nil {
		return b, err
	}
	if b.job.Objective == nil {
		return b, fmt.Errorf("job %s/%s: its stored objective cannot be read", b.job.App, b.job.Name)
	}
	if from := b.To.Add(-dispatcher.ObjectiveWindow); from.After(b.From) {
		b.From = from
	}
	if b.band != nil {
		b.ObjectiveCounts = dispatcher.ObjectiveCounts{Good: *good, Late: *late, Missed: *missed}
	}
	return b, nil
}

// add adds the counts of a band to those of all the times that it is part of.
func (j *measuredJob) add(of measuredBand) {
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

// ObjectiveStatus returns how a job does by its objective.
func (s *Store) ObjectiveStatus(ctx context.Context, app, job string) (dispatcher.ObjectiveStatus, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	// $1 app, $2 name
	const named = `WITH b AS MATERIALIZED (SELECT id FROM jobs WHERE app_id = $1 AND name = $2 AND deleted_at IS NULL)`
	found, err := measuredOf(ctx, s.db.Read, named, ``, run.AppID(app), job)
	if err != nil {
		return dispatcher.ObjectiveStatus{}, err
	}
	if len(found) > 0 {
		return found[0].Status(found[0].job), nil
	}
	if _, err := s.findJob(ctx, s.db.Read, app, job, ""); errors.Is(err, dispatcher.ErrNotFound) {
		return dispatcher.ObjectiveStatus{}, err
	}
	return dispatcher.ObjectiveStatus{}, fmt.Errorf("job %s has no objective; declare objective in its definition: %w",
		input.Echo(app+"/"+job), dispatcher.ErrNotFound)
}

// ObjectiveStatuses returns a page of the jobs of an app that have an objective, by name.
func (s *Store) ObjectiveStatuses(ctx context.Context, app string, page input.Page) ([]dispatcher.ObjectiveStatus, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	if _, err := readApp(ctx, s.db.Read, app, ""); err != nil {
		return nil, err
	}
	// $1 app, $2 last name of the page before, $3 limit. The page is chosen before anything is counted.
	const listed = `WITH b AS MATERIALIZED (SELECT id FROM jobs
		WHERE app_id = $1 AND name > $2 AND objective <> '' AND deleted_at IS NULL ORDER BY name LIMIT $3)`
	found, err := measuredOf(ctx, s.db.Read, listed, ``, run.AppID(app), page.Cursor, page.Limit)
	statuses := make([]dispatcher.ObjectiveStatus, len(found))
	for i, one := range found {
		statuses[i] = one.Status(one.job)
	}
	return statuses, err
}
