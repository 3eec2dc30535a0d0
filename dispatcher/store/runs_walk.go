package store

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// To look once into an index for each job costs more the more jobs an app has. But the more of all jobs are its own, the sooner
// a walk through the history of all apps in the order of the page comes past its runs. So a list of an app with many jobs
// walks first, through a bounded number of rows, and looks job by job only for what is before them.

// walks are the bounds of walks.
type walks struct {
	jobs, countedJobs int           // that an app has at least whose lists, and whose counts, walk
	rows, counted     int           // that a list, or a count, comes past; further ones only if they have the time of the last
	span              time.Duration // how far back a walk through all runs goes: PostgreSQL plans for each day of it
}

// usualWalks are those of a database. PostgreSQL looks into the index of each day for each job, SQLite into one for all days.
func usualWalks(byDay bool) walks {
	w := walks{jobs: 2_000, countedJobs: 2_000, rows: 10_000, counted: 100_000, span: 3 * 24 * time.Hour}
	if byDay {
		w.jobs = 200
	}
	return w
}

// ofAppID is the condition that the job of a run r is one of the app whose id the %s stands for. It is looked up row by row: else
// a database may read all jobs of the app first.
const ofAppID = `(SELECT of.app_id FROM jobs AS of WHERE of.id = r.job_id) = %s`

// ofAppThere is ofAppID for jobs that were not deleted.
const ofAppThere = `(SELECT CASE WHEN of.deleted_at IS NULL THEN of.app_id END FROM jobs AS of WHERE of.id = r.job_id) = %s`

// hasManyJobs tells whether an app has so many jobs, with those that are deleted.
func (s *store) hasManyJobs(ctx context.Context, app int64, jobs int) (bool, error) {
	// $1 app
	_, many, err := first(ctx, s.read, scanInt, `SELECT j.app_id FROM jobs AS j WHERE j.app_id = $1 LIMIT 1 OFFSET `+
		strconv.Itoa(jobs-1), app)
	return many, err
}

// walkEnd returns the time of the last row that a walk past so many comes past, nil if it comes past all. Each table has rows with a time
// that meet conditions, which are about their keys only.
func (s *store) walkEnd(ctx context.Context, w conditions, rows int, at string, tables ...string) (*int64, error) {
	list := ``
	for i, table := range tables {
		if i > 0 {
			list += ` UNION ALL `
		}
		list += `SELECT (SELECT ` + at + ` FROM ` + table + w.text + ` ORDER BY ` + at + ` DESC LIMIT 1 OFFSET ` +
			strconv.Itoa(rows-1) + `) AS last`
	}
	end, _, err := first(ctx, s.read, scanNullInt, `SELECT max(w.last) FROM (`+list+`) AS w`, w.args...)
	if err != nil {
		return nil, fmt.Errorf("look how far to walk: %w", err)
	}
	return end, nil
}

// walked is what a walk found of a page, and before which time it has yet to be looked for the rest of it.
type walked struct {
	runs []dispatcher.Run
	rest *int64 // nil: nowhere
}

// walkRuns walks through the latest runs of all apps for those of an app that meet conditions.
func (s *store) walkRuns(ctx context.Context, query dispatcher.RunQuery, of conditions, claimed string) (found walked, err error) {
	latest, err := s.latestInstant(ctx, query)
	if err != nil {
		return found, err
	}
	rest := latest.Add(-s.walks.span).UnixMilli()
	keys, err := runConditions(dispatcher.RunQuery{From: query.From, To: query.To, Page: query.Page}, 0)
	if err != nil {
		return found, err
	}
	keys.add("r.scheduled_at >= %s", rest)
	end, err := s.walkEnd(ctx, keys, s.walks.rows, `r.scheduled_at`, `runs AS r WHERE 1 = 1`, `live_runs AS r WHERE 1 = 1`)
	if err != nil {
		return found, err
	}
	if end != nil {
		rest = *end
	}
	w, limit := of, latestRuns+` LIMIT `+strconv.Itoa(query.Page.Limit)
	w.add("r.scheduled_at >= %s AND "+ofAppID, rest, dispatcher.AppID(query.App))
	page := unionOfRuns(`SELECT * FROM (`+endedRuns+`) AS r WHERE 1 = 1`+w.text+limit, claimed, w.text, limit)
	found.runs, err = collect(ctx, s.read, scanRun, runQuery(page), w.args...)
	if rest > query.From.UnixMilli() {
		found.rest = &rest
	}
	return found, err
}

// walkDead is walkRuns of dead letters, which have an index in the order of the page.
func (s *store) walkDead(ctx context.Context, query dispatcher.RunQuery, of conditions, replayable bool) (found walked, err error) {
	w, limit := of, latestRuns+` LIMIT `+strconv.Itoa(query.Page.Limit)
	if found.rest, err = s.walkPastDead(ctx, query, &w, s.walks.rows, replayable); err != nil {
		return found, err
	}
	found.runs, err = collect(ctx, s.read, scanRun, runQuery(deadRuns+w.text+limit), w.args...)
	return found, err
}

// walkPastDead adds to conditions those of a walk past so many dead letters, and returns before which time it has yet to be looked.
func (s *store) walkPastDead(ctx context.Context, query dispatcher.RunQuery, w *conditions, rows int, replayable bool) (*int64, error) {
	keys, err := runConditions(dispatcher.RunQuery{From: query.From, To: query.To, Page: query.Page}, 0)
	if err != nil {
		return nil, err
	}
	// With a beginning, if only that of all time, SQLite takes the index in the order of the page.
	keys.add("r.scheduled_at >= %s", int64(math.MinInt64))
	rest, err := s.walkEnd(ctx, keys, rows, `r.scheduled_at`, `runs AS r WHERE `+isDead)
	if err != nil {
		return nil, err
	}
	from := int64(math.MinInt64)
	if rest != nil {
		from = *rest
	}
	of := ofAppID
	if replayable {
		of = ofAppThere
	}
	w.add("r.scheduled_at >= %s AND "+of, from, dispatcher.AppID(query.App))
	return rest, nil
}

// restOfPage completes a page that a walk began: rest looks for what is before it.
func restOfPage(query dispatcher.RunQuery, of conditions, found walked,
	rest func(query dispatcher.RunQuery, of conditions) ([]dispatcher.Run, error),
) ([]dispatcher.Run, error) {
	if found.rest == nil || len(found.runs) == query.Page.Limit {
		return found.runs, nil
	}
	of.add("r.scheduled_at < %s", *found.rest)
	query.To, query.Page.Limit = instant(*found.rest-1), query.Page.Limit-len(found.runs)
	further, err := rest(query, of)
	return append(found.runs, further...), err
}
