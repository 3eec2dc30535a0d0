package reads

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// To look once into an index for each job costs more the more jobs an app has. But the more of all jobs are its own, the sooner
// a walk through the history of all apps in the order of the page comes past its runs. So a list of an app with many jobs
// walks first, through a bounded number of rows, and looks job by job only for what is before them.

// Walks are the bounds of walks.
type Walks struct {
	Jobs, CountedJobs int           // that an app has at least whose lists, and whose counts, walk
	Rows, Counted     int           // that a list, or a count, comes past; further ones only if they have the time of the last
	Span              time.Duration // how far back a walk through all runs goes: PostgreSQL plans for each day of it
}

// ofAppID is the condition that the job of a run r is one of the app whose id the %s stands for. It is looked up row by row: else
// a database may read all jobs of the app first.
const ofAppID = `(SELECT of.app_id FROM jobs AS of WHERE of.id = r.job_id) = %s`

// ofAppThere is ofAppID for jobs that were not deleted.
const ofAppThere = `(SELECT CASE WHEN of.deleted_at IS NULL THEN of.app_id END FROM jobs AS of WHERE of.id = r.job_id) = %s`

// ofJobsThere is ofAppThere for many rows: PostgreSQL reads the ids of the jobs once and keeps them, as IS TRUE makes no join of it.
// SQLite would write them to a table of its own.
const ofJobsThere = `(r.job_id IN (SELECT of.id FROM jobs AS of WHERE of.app_id = %s AND of.deleted_at IS NULL)) IS TRUE`

// HasManyJobs tells whether an app has so many jobs, with those that are deleted.
func (s *Store) HasManyJobs(ctx context.Context, app int64, jobs int) (bool, error) {
	// $1 app
	_, many, err := db.First(ctx, s.db.Read, db.ScanInt, `SELECT j.app_id FROM jobs AS j WHERE j.app_id = $1 LIMIT 1 OFFSET `+
		strconv.Itoa(jobs-1), app)
	return many, err
}

// walkEnd returns the time of the last row that a walk past so many comes past, nil if it comes past all. Each table has rows with a time
// that meet conditions, which are about their keys only.
func (s *Store) walkEnd(ctx context.Context, w db.Conditions, rows int, at string, tables ...string) (*int64, error) {
	list := ``
	for i, table := range tables {
		if i > 0 {
			list += ` UNION ALL `
		}
		list += `SELECT (SELECT ` + at + ` FROM ` + table + w.Text + ` ORDER BY ` + at + ` DESC LIMIT 1 OFFSET ` +
			strconv.Itoa(rows-1) + `) AS last`
	}
	end, _, err := db.First(ctx, s.db.Read, db.ScanNullInt, `SELECT max(w.last) FROM (`+list+`) AS w`, w.Args...)
	if err != nil {
		return nil, fmt.Errorf("look how far to walk: %w", err)
	}
	return end, nil
}

// walked is what a walk found of a page, and before which time it has yet to be looked for the rest of it, how far back first. The zero
// value is that of no walk.
type walked struct {
	runs []run.Run
	all  bool // there are no others
	rest *int64
	span time.Duration
}

// walkRuns walks through the latest runs of all apps for those of an app that meet conditions.
func (s *Store) walkRuns(ctx context.Context, query dispatcher.RunQuery, of db.Conditions, claimed string) (found walked, err error) {
	latest, err := s.latestInstant(ctx, query)
	if err != nil {
		return found, err
	}
	rest := latest.Add(-s.Walks.Span).UnixMilli()
	keys, err := RunConditions(dispatcher.RunQuery{From: query.From, To: query.To, Page: query.Page}, 0)
	if err != nil {
		return found, err
	}
	keys.Add("r.scheduled_at >= %s", rest)
	end, err := s.walkEnd(ctx, keys, s.Walks.Rows, `r.scheduled_at`, `runs AS r WHERE 1 = 1`, `live_runs AS r WHERE 1 = 1`)
	if err != nil {
		return found, err
	}
	if end != nil {
		rest = *end
	}
	w, limit := of, latestRuns+` LIMIT `+strconv.Itoa(query.Page.Limit)
	w.Add("r.scheduled_at >= %s AND "+ofAppID, rest, run.AppID(query.App))
	page := unionOfRuns(`SELECT * FROM (`+db.EndedRuns+`) AS r WHERE 1 = 1`+w.Text+limit, claimed, w.Text, limit)
	found.runs, err = db.Collect(ctx, s.db.Read, scanRun, RunQuery(page), w.Args...)
	found.all, found.rest = rest <= query.From.UnixMilli(), &rest
	// Each look costs a search for each job. The fewer runs of the app the walk came past, the further back the page reaches.
	further := time.Duration(min(4*query.Page.Limit/(len(found.runs)+1)+1, spanGrowth))
	found.span = max(firstSpan, further*latest.Sub(db.Instant(rest)))
	return found, err
}

// walkDead is walkRuns of dead letters, which have an index in the order of the page.
func (s *Store) walkDead(ctx context.Context, query dispatcher.RunQuery, of db.Conditions, replayable bool) (found walked, err error) {
	keys, err := deadKeys(query)
	if err != nil {
		return found, err
	}
	if found.rest, err = s.walkEnd(ctx, keys, s.Walks.Rows, `r.scheduled_at`, `runs AS r WHERE `+db.IsDead); err != nil {
		return found, err
	}
	from := int64(math.MinInt64)
	if found.rest != nil {
		from = *found.rest
	}
	ofApp := ofAppID
	if replayable {
		ofApp = ofAppThere
	}
	w, limit := of, latestRuns+` LIMIT `+strconv.Itoa(query.Page.Limit)
	w.Add("r.scheduled_at >= %s AND "+ofApp, from, run.AppID(query.App))
	found.all = found.rest == nil
	found.runs, err = db.Collect(ctx, s.db.Read, scanRun, RunQuery(db.DeadRuns+w.Text+limit), w.Args...)
	return found, err
}

// deadKeys returns the conditions of a query on the keys of dead letters.
func deadKeys(query dispatcher.RunQuery) (db.Conditions, error) {
	keys, err := RunConditions(dispatcher.RunQuery{From: query.From, To: query.To, Page: query.Page}, 0)
	// With a beginning, if only that of all time, SQLite takes the index in the order of the page.
	keys.Add("r.scheduled_at >= %s", int64(math.MinInt64))
	return keys, err
}

// countPastDead counts, up to most, the dead letters of an app that a query selects and that a walk comes past. all tells that these
// are all, or most.
func (s *Store) countPastDead(ctx context.Context, query repeat.DeadLetterQuery, most int) (n int, all bool, err error) {
	keys, err := deadKeys(dispatcher.RunQuery{From: query.From, To: query.To})
	if err != nil {
		return 0, false, err
	}
	columns := `r.job_id, r.state` // which the index has
	if query.Class != "" {
		columns += `, r.class`
	}
	ofApp := ofAppThere
	if !s.db.Single() {
		ofApp = ofJobsThere
	}
	of := db.Conditions{Args: keys.Args}
	of.Add(ofApp, run.AppID(query.App))
	addOutcome(&of, query)
	counted, _, err := db.First(ctx, s.db.Read, db.ScanInt, `SELECT count(*) FROM (SELECT 1 FROM (SELECT `+columns+` FROM runs AS r
		WHERE `+db.IsDead+keys.Text+` ORDER BY r.scheduled_at DESC LIMIT `+strconv.Itoa(s.Walks.Counted)+`) AS r WHERE 1 = 1`+of.Text+`
		LIMIT `+strconv.Itoa(most)+`) AS dead`, of.Args...)
	if err != nil || int(counted) == most {
		return int(counted), true, err
	}
	end, err := s.walkEnd(ctx, keys, s.Walks.Counted, `r.scheduled_at`, `runs AS r WHERE `+db.IsDead)
	return int(counted), end == nil, err
}
