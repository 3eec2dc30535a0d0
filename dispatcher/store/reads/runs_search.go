package reads

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/definitions"
)

// No index has the node, class, kind or error of a run: it would cost each fire an entry. So a search examines the
// latest runs in the order of the page, only so many at once, and the next page goes on from there. Runs that failed
// have an index of their own, which a search for a class or an error uses.

const (
	// searchedDay is how far back a page of the runs of an app with few jobs goes. They are found job by job, as in its list.
	searchedDay = 24 * time.Hour
	// searchedByID is how many runs a page examines for an id that only computing the ids of runs can find.
	searchedByID = 2000
)

// SearchRuns returns a page of the runs that a search selects, latest first, and the cursor of the next page.
func (s *Store) SearchRuns(ctx context.Context, query dispatcher.RunSearch) (found []run.Run, next string, err error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	if query.To.IsZero() { // with an upper bound, SQLite seeks the latest run instead of reading from the end
		query.To = db.Instant(math.MaxInt64)
	}
	list := dispatcher.RunQuery{State: query.State, From: query.From, To: query.To, Page: query.Page}
	if query.State == "" && (query.Class != "" || query.Error != "") {
		list.State = run.Failed // selects where to search; see below
	}
	of, err := searchConditions(query)
	if err != nil {
		return nil, "", err
	}
	latest, err := s.latestInstant(ctx, list)
	if err != nil {
		return nil, "", err
	}
	var end *int64 // the page examines no earlier runs; nil: there are none
	byJobs, err := s.searchesByJobs(ctx, query, list)
	if err != nil {
		return nil, "", err
	}
	if byJobs {
		list.App = query.Apps[0]
		if from := latest.Add(-searchedDay); from.After(query.From) {
			end, list.From = new(from.UnixMilli()), from
			of.Add("r.scheduled_at >= %s", *end)
		}
		found, err = s.runsOfApp(ctx, list, of)
	} else {
		found, end, err = s.walkSearch(ctx, query, list, of, latest)
	}
	switch {
	case err != nil:
		return nil, "", err
	case len(found) >= query.Page.Limit:
		found = found[:query.Page.Limit]
		next = found[len(found)-1].ID
	case end != nil:
		next, err = s.earlier(ctx, query.From, *end)
	}
	return found, next, err
}

// searchesByJobs reports whether a search finds the runs of an app job by job, as its list does. A day of many jobs takes
// too long.
func (s *Store) searchesByJobs(ctx context.Context, query dispatcher.RunSearch, list dispatcher.RunQuery) (bool, error) {
	if len(query.Apps) != 1 || query.Job != "" || query.ID != "" || list.State != query.State {
		return false, nil
	}
	many, err := s.HasManyJobs(ctx, run.AppID(query.Apps[0]), s.Walks.Jobs)
	return !many, err
}

// earlier returns the cursor of the page that begins with the latest run before an instant, whatever it is; empty: there
// is none.
func (s *Store) earlier(ctx context.Context, from time.Time, before int64) (cursor string, err error) {
	keys, err := RunConditions(dispatcher.RunQuery{From: from, To: db.Instant(before - 1)}, 0)
	if err != nil {
		return "", err
	}
	at, err := s.walkEnd(ctx, keys, 1, `r.scheduled_at`, `runs AS r WHERE 1 = 1`, `live_runs AS r WHERE 1 = 1`)
	if at == nil || err != nil {
		return "", err
	}
	return run.Key{ScheduledAt: db.Instant(*at + 1), Kind: run.KindSchedule}.String(), nil
}

// walkSearch examines the latest runs of all apps, or of one job, and returns the time of the last one that it examined,
// nil if there are no earlier ones.
func (s *Store) walkSearch(ctx context.Context, query dispatcher.RunSearch, list dispatcher.RunQuery, of db.Conditions,
	latest time.Time,
) (found []run.Run, end *int64, err error) {
	keys, err := RunConditions(dispatcher.RunQuery{From: query.From, To: query.To, Page: query.Page}, 0)
	if err != nil {
		return nil, nil, err
	}
	if query.Job != "" && len(query.Apps) == 1 {
		job, err := s.JobKey(ctx, query.Apps[0], query.Job)
		if err != nil {
			return nil, nil, err
		}
		keys.Add("r.job_id = %s", job)
		of.Add("r.job_id = %s", job)
	}
	ended, live := `runs AS r WHERE 1 = 1`, `live_runs AS r WHERE 1 = 1`
	tables, page := []string{ended, live}, db.EndedRuns+` WHERE 1 = 1`
	switch {
	case slices.Contains(dispatcher.LiveStates, list.State):
		tables, page = []string{live}, db.EndedRuns+` WHERE 1 = 0`
	case slices.Contains(repeat.DeadLetterStates, list.State):
		tables, page = []string{`runs AS r WHERE ` + db.IsDead, live}, db.DeadRuns
	default: // PostgreSQL plans for each day
		if span := latest.Add(-s.Walks.Span); span.After(query.From) {
			end = new(span.UnixMilli())
			keys.Add("r.scheduled_at >= %s", *end)
		}
	}
	rows, limit := s.Walks.Rows, query.Page.Limit
	if query.ID != "" {
		rows = min(rows, searchedByID)
		limit = 2 * rows // and those at the same time as the last
	}
	last, err := s.walkEnd(ctx, keys, rows, `r.scheduled_at`, tables...)
	if err != nil {
		return nil, nil, err
	}
	if last != nil {
		end = last
	}
	if end != nil {
		of.Add("r.scheduled_at >= %s", *end)
	}
	claimed, err := s.ClaimedNow(ctx)
	if err != nil {
		return nil, nil, err
	}
	ordered := latestRuns + ` LIMIT ` + strconv.Itoa(limit)
	found, err = db.Collect(ctx, s.db.Read, scanRun,
		RunQuery(unionOfRuns(`SELECT * FROM (`+page+`) AS r WHERE 1 = 1`+of.Text+ordered, claimed, of.Text, ordered)), of.Args...)
	if query.ID != "" {
		found = slices.DeleteFunc(found, func(r run.Run) bool { return !r.HasID(query.ID) })
	}
	return found, end, err
}

// searchConditions returns the conditions of a search. Those about jobs are checked row by row.
func searchConditions(query dispatcher.RunSearch) (db.Conditions, error) {
	w, err := RunConditions(dispatcher.RunQuery{State: query.State, From: query.From, To: query.To, Page: query.Page}, 0)
	if len(query.Apps) > 0 {
		ids := make([]any, len(query.Apps))
		for i, app := range query.Apps {
			ids[i] = run.AppID(app)
		}
		w.Add(`(SELECT of.app_id FROM jobs AS of WHERE of.id = r.job_id) IN (`+strings.Repeat(", %s", len(ids))[2:]+`)`, ids...)
	}
	if query.Job != "" && len(query.Apps) != 1 {
		w.Add(`(SELECT of.name FROM jobs AS of WHERE of.id = r.job_id) = %s`, query.Job)
	}
	if query.Trigger != "" {
		w.Add(`(SELECT of.name FROM triggers AS of WHERE of.id = r.trigger_id) = %s`, query.Trigger)
	}
	if labels := query.Page.Labels; len(labels) > 0 {
		args := definitions.StatementArgs(w.Args)
		w.Text += ` AND EXISTS (SELECT 1 FROM jobs AS j WHERE j.id = r.job_id` + definitions.WithLabels(labels, &args) + `)`
		w.Args = args
	}
	if query.Kind != "" {
		w.Add("r.kind = %s", int64(query.Kind.Code()))
	}
	if query.Node != 0 {
		w.Add("r.node = %s", int64(query.Node))
	}
	if query.Class != "" {
		w.Add("r.class = %s", string(query.Class))
	}
	if query.Error != "" {
		w.Add("replace(lower(r.error), lower(CAST(%s AS TEXT)), '') <> lower(r.error)", query.Error)
	}
	return w, err
}

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
