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

// Searching an index once for each job costs more the more jobs an app has. But the larger its share of all jobs is,
// the sooner a walk through the history of all apps, in the order of the page, meets its runs. So a list of an app with
// many jobs first walks through a bounded number of rows, and only searches job by job for earlier runs.

// Walks are the limits of walks.
type Walks struct {
	Jobs, CountedJobs int           // minimum jobs of an app for walks by lists, and by counts
	Rows, Counted     int           // rows read by a list, or a count; further ones only with the same time as the last
	Span              time.Duration // how far back a walk through all runs goes: PostgreSQL plans for each day
}

// ofAppID is the condition that the job of a run r belongs to the app with the id %s. It is checked row by row:
// otherwise a database may read all jobs of the app first.
const ofAppID = `(SELECT of.app_id FROM jobs AS of WHERE of.id = r.job_id) = %s`

// ofAppThere is ofAppID for jobs that were not deleted.
const ofAppThere = `(SELECT CASE WHEN of.deleted_at IS NULL THEN of.app_id END FROM jobs AS of WHERE of.id = r.job_id) = %s`

// ofJobsThere is ofAppThere for many rows: PostgreSQL reads the ids of the jobs once and keeps them, because IS TRUE
// prevents a join. SQLite would write them to a separate table.
const ofJobsThere = `(r.job_id IN (SELECT of.id FROM jobs AS of WHERE of.app_id = %s AND of.deleted_at IS NULL)) IS TRUE`

// HasManyJobs reports whether an app has so many jobs, including deleted ones.
func (s *Store) HasManyJobs(ctx context.Context, app int64, jobs int) (bool, error) {
	// $1 app
	_, many, err := db.First(ctx, s.db.Read, db.ScanInt, `SELECT j.app_id FROM jobs AS j WHERE j.app_id = $1 LIMIT 1 OFFSET `+
		strconv.Itoa(jobs-1), app)
	return many, err
}

// walkEnd returns the time of the last row of a walk through so many rows, nil if there are fewer. Each table has rows
// with a time that meet conditions, which concern only their keys.
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

// walked is the result of a walk for a page: the runs found, the time before which to search for the rest, and how far
// back first. The zero value means no walk.
type walked struct {
	runs []run.Run
	all  bool // there are no others
	rest *int64
	span time.Duration
}

// walkRuns walks through the latest runs of all apps to find those of an app that meet conditions.
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
	// Each search costs a look-up per job. The fewer runs of the app the walk found, the further back the page goes.
	further := time.Duration(min(4*query.Page.Limit/(len(found.runs)+1)+1, spanGrowth))
	found.span = max(firstSpan, further*latest.Sub(db.Instant(rest)))
	return found, err
}

// walkDead is walkRuns for dead letters, which have an index in the order of the page.
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

func deadKeys(query dispatcher.RunQuery) (db.Conditions, error) {
	keys, err := RunConditions(dispatcher.RunQuery{From: query.From, To: query.To, Page: query.Page}, 0)
	// With a lower bound, even the lowest possible, SQLite uses the index in the order of the page.
	keys.Add("r.scheduled_at >= %s", int64(math.MinInt64))
	return keys, err
}

// countPastDead counts, up to most, the selected dead letters of an app in a walk. all means that these are all, or
// most.
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
