package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
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
	return converted[*dispatcher.Objective, string]{o, func(text string) *dispatcher.Objective {
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
	}}
}

// writeObjective lets the fires of a job with an objective be counted. With another bound than before they are counted
// again, as far back as the ledger and the window go. What is left of a job that has no objective any more is removed
// when it is next looked at.
func (t *tx) writeObjective(ctx context.Context, job dispatcher.Job) error {
	if job.Objective == nil {
		return nil
	}
	from := max(t.now.Add(-dispatcher.ObjectiveWindow).UnixMilli(), job.CreatedAt.UnixMilli())
	// $1 job, $2 within, $3 beginning
	const put = `INSERT INTO objectives (job_id, within, counted_from, checked_to) VALUES ($1, $2, $3, $3)
		ON CONFLICT (job_id) DO UPDATE SET within = excluded.within, counted_from = excluded.counted_from,
			checked_to = excluded.checked_to, pending_after = 0 WHERE objectives.within <> excluded.within`
	changed, err := t.execute(ctx, put, job.Key(), toMillis(job.Objective.Within), from-from%objectiveHour)
	if err == nil && changed > 0 {
		err = t.forgetCounts(ctx, job.Key())
	}
	if err != nil {
		return fmt.Errorf("objective of job %s/%s: %w", job.App, job.Name, err)
	}
	return nil
}

// forgetCounts removes what was counted of a job, and its cursors.
func (t *tx) forgetCounts(ctx context.Context, job int64) error {
	for _, table := range []string{"objective_triggers", "objective_pending", "objective_counts"} {
		if _, err := t.ExecContext(ctx, `DELETE FROM `+table+` WHERE job_id = $1`, job); err != nil {
			return err
		}
	}
	return nil
}

// objectiveSums are the counts of a job AS o over the window and each of dispatcher.ObjectiveSpans before what is counted.
func objectiveSums() string {
	sums := ""
	add := func(minutes int, back int64) {
		for _, column := range []string{"good", "late", "missed"} {
			sums += fmt.Sprintf(`,
		coalesce(sum(CASE WHEN c.minutes = %d AND c.from_at >= o.checked_to - CAST(%d AS BIGINT) THEN c.%s ELSE 0 END), 0)`,
				minutes, back, column)
		}
	}
	add(60, dispatcher.ObjectiveWindow.Milliseconds())
	for _, span := range dispatcher.ObjectiveSpans() {
		add(5, span.Milliseconds())
	}
	return sums
}

// objectiveOf selects what was counted of jobs j that have an objective o, by the buckets c that counted selects; empty: all.
func objectiveOf(from, counted, where string) string {
	return ` SELECT j.id, a.name, j.name, j.objective, o.counted_from, o.checked_to,
		(SELECT count(*) FROM objective_pending AS p WHERE p.job_id = o.job_id)` + objectiveSums() + `
	FROM ` + from + ` JOIN apps AS a ON a.id = j.app_id JOIN objectives AS o ON o.job_id = j.id
		LEFT JOIN objective_counts AS c ON c.job_id = o.job_id` + counted + `
	WHERE j.objective <> '' AND j.deleted_at IS NULL` + where + `
	GROUP BY j.id, a.name, j.name, j.objective, o.job_id, o.counted_from, o.checked_to`
}

// latestCounts selects the buckets c by which objectiveOf tells whether an error budget burns.
func latestCounts() string {
	return fmt.Sprintf(` AND c.minutes = 5 AND c.from_at >= o.checked_to - CAST(%d AS BIGINT)`, dispatcher.ObjectiveBurnSpan.Milliseconds())
}

// measuredJob is a job with what was counted of it.
type measuredJob struct {
	id     int64
	status dispatcher.ObjectiveStatus
	burn   dispatcher.ObjectiveBurn
}

func scanMeasured(row scanner) (j measuredJob, err error) {
	var job dispatcher.Job
	var m dispatcher.ObjectiveMeasured
	m.Spans = make([]dispatcher.ObjectiveCounts, len(dispatcher.ObjectiveSpans()))
	refs := []any{&j.id, &job.App, &job.Name, objectiveColumn(&job.Objective), instantColumn(&m.From), instantColumn(&m.To), &m.Pending}
	for _, counts := range append([]*dispatcher.ObjectiveCounts{&m.Window}, pointers(m.Spans)...) {
		refs = append(refs, &counts.Good, &counts.Late, &counts.Missed)
	}
	if err := row.Scan(refs...); err != nil {
		return j, err
	}
	if job.Objective == nil {
		return j, fmt.Errorf("job %s/%s: its stored objective cannot be read", job.App, job.Name)
	}
	if from := m.To.Add(-dispatcher.ObjectiveWindow); from.After(m.From) {
		m.From = from
	}
	j.status, j.burn = m.Status(job), m.Burn(job)
	return j, nil
}

// pointers returns where the elements of a list are.
func pointers[T any](list []T) []*T {
	all := make([]*T, len(list))
	for i := range list {
		all[i] = &list[i]
	}
	return all
}

// ObjectiveStatus returns how a job does by its objective.
func (s *store) ObjectiveStatus(ctx context.Context, app, job string) (dispatcher.ObjectiveStatus, error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	// $1 app, $2 name
	found, there, err := first(ctx, s.read, scanMeasured, objectiveOf(`jobs AS j`, ``, ` AND j.app_id = $1 AND j.name = $2`),
		dispatcher.AppID(app), job)
	if err != nil || there {
		return found.status, err
	}
	if _, err := s.findJob(ctx, s.read, app, job, ""); errors.Is(err, dispatcher.ErrNotFound) {
		return found.status, err
	}
	return found.status, fmt.Errorf("job %s has no objective; declare objective in its definition: %w", dispatcher.Echo(app+"/"+job),
		dispatcher.ErrNotFound)
}

// ObjectiveStatuses returns a page of the jobs of an app that have an objective, by name.
func (s *store) ObjectiveStatuses(ctx context.Context, app string, page dispatcher.Page) ([]dispatcher.ObjectiveStatus, error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	if _, err := findApp(ctx, s.read, app, ""); err != nil {
		return nil, err
	}
	// $1 app, $2 last name of the page before, $3 limit. The page is chosen before anything is counted.
	list := objectiveOf(`(SELECT x.* FROM jobs AS x WHERE x.app_id = $1 AND x.name > $2 AND x.objective <> '' AND x.deleted_at IS NULL
		ORDER BY x.name LIMIT $3) AS j`, ``, ``) + ` ORDER BY j.name`
	found, err := collect(ctx, s.read, scanMeasured, list, dispatcher.AppID(app), page.Cursor, page.Limit)
	statuses := make([]dispatcher.ObjectiveStatus, len(found))
	for i := range found {
		statuses[i] = found[i].status
	}
	return statuses, err
}
