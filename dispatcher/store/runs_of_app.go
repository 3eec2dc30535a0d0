package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// An app has no index of its own in the history: it would cost each fire an entry, for the sake of one list. Its
// runs are found job by job, in a span of time that begins short and ends with the page: so the
// list reads about as many rows as it shows, and looks once into the index of a day for each job that the app has
// or had. What other apps have in the same days costs nothing.

const (
	// firstSpan is what of the past is looked at first, and each look goes spanGrowth times as far back as all before
	// it: of a steady app one reads at most that many times what it needs. A look costs a search in the index for each
	// job, so that for an app with many jobs few looks matter more than few rows.
	firstSpan  = time.Minute
	spanGrowth = 16
	// lastSpan reaches beyond the longest retention there can be: a look that would reach so far has no lower bound.
	lastSpan = 15 * 365 * 24 * time.Hour
)

// runsOfApp returns a page of the runs of all jobs of an app. Of runs in a state in which they are not over it leaves the history
// alone, which has none of them; those that failed for good have an index of their own.
func (s *Store) runsOfApp(ctx context.Context, query dispatcher.RunQuery, of db.Conditions) ([]run.Run, error) {
	app := run.AppID(query.App)
	if slices.Contains(repeat.DeadLetterStates, query.State) {
		return s.deadOfApp(ctx, query, of, 0, false)
	}
	claimed, err := s.claimedNow(ctx)
	if err != nil {
		return nil, err
	}
	many, err := s.hasManyJobs(ctx, app, s.walks.jobs)
	if err != nil {
		return nil, err
	}
	if slices.Contains(dispatcher.LiveStates, query.State) {
		list, args := unendedOfApp(of, claimed, app, many, latestRuns+` LIMIT `+strconv.Itoa(query.Page.Limit))
		return db.Collect(ctx, s.db.Read, scanRun, runQuery(list), args...)
	}
	look := func(w db.Conditions, most int) ([]run.Run, error) {
		list, args := s.jobsQuery(w, claimed, app, many, most)
		return db.Collect(ctx, s.db.Read, scanRun, list, args...)
	}
	if !many {
		return s.lookBack(ctx, query, of, firstSpan, look)
	}
	found, err := s.walkRuns(ctx, query, of, claimed)
	if err != nil {
		return nil, err
	}
	return s.restOfPage(ctx, query, of, found, look)
}

// addApp adds the condition that a run r, one of few that are not over, is of an app. If the app has many jobs, it is looked up row by
// row: SQLite would else look for runs of each of them.
func addApp(w *db.Conditions, app int64, many bool) {
	if many {
		w.Add(ofAppID, app)
	} else {
		w.Add("r.job_id IN (SELECT id FROM jobs WHERE app_id = %s)", app)
	}
}

// unendedOfApp is a query for the runs of an app that are not over and meet conditions. limit orders and limits them.
func unendedOfApp(w db.Conditions, claimed string, app int64, many bool, limit string) (query string, args []any) {
	addApp(&w, app, many)
	of := func(runs string) string { return `SELECT * FROM (` + runs + `) AS r WHERE 1 = 1` + w.Text + limit }
	return `SELECT * FROM (SELECT * FROM (` + of(db.UnendedRuns) + `) AS live UNION ALL SELECT * FROM (` + of(claimed) + `) AS claimed) AS r` +
		limit, w.Args
}

// look finds runs of an app, job by job, that meet conditions, the latest first and at most so many.
type look func(w db.Conditions, most int) ([]run.Run, error)

// lookBack returns a page of the runs of an app, of which it looks through a span of time first.
func (s *Store) lookBack(ctx context.Context, query dispatcher.RunQuery, of db.Conditions, span time.Duration, look look) (
	[]run.Run, error,
) {
	latest, err := s.latestInstant(ctx, query)
	if err != nil {
		return nil, err
	}
	var page []run.Run
	for before := time.Duration(0); ; before, span = span, span*spanGrowth {
		w, from := of, latest.Add(-span)
		if before > 0 {
			w.Add("r.scheduled_at < %s", latest.Add(-before).UnixMilli())
		}
		last := span >= lastSpan || from.Before(query.From)
		if !last {
			w.Add("r.scheduled_at >= %s", from.UnixMilli())
		}
		found, err := look(w, query.Page.Limit-len(page))
		if err != nil {
			return nil, fmt.Errorf("look for runs of app %s, of which %d are found, back to %s; name a job, or an earlier time "+
				"to look back from: %w", input.Echo(query.App), len(page), input.FormatInstant(from), err)
		}
		page = append(page, found...)
		if last || len(page) == query.Page.Limit {
			return page, nil
		}
	}
}

// latestInstant returns from where a list looks back. What is scheduled after it belongs to the first look, too.
func (s *Store) latestInstant(ctx context.Context, query dispatcher.RunQuery) (time.Time, error) {
	latest, err := s.db.Now(ctx, s.db.Read)
	if err != nil {
		return latest, err
	}
	if !query.To.IsZero() && query.To.Before(latest) {
		latest = query.To
	}
	if query.Page.Cursor != "" {
		if key, err := run.ParseKey(query.Page.Cursor); err == nil && key.ScheduledAt.Before(latest) {
			latest = key.ScheduledAt
		}
	}
	return latest, nil
}

// ofJobs begins a query with the ids of the jobs j that meet a condition as b. PostgreSQL takes them for few, so that it looks into an
// index for each and never reads the history of all.
func (s *Store) ofJobs(condition string) string {
	return `WITH b AS MATERIALIZED (SELECT j.id FROM jobs AS j WHERE ` + condition + s.db.SeemingFew(`j.id`) + ` ORDER BY j.id)`
}

// jobsQuery returns a query for the latest runs of an app, job by job, that meet conditions, and its parameters.
func (s *Store) jobsQuery(w db.Conditions, claimed string, app int64, many bool, most int) (string, []any) {
	ofApp := w
	addApp(&ofApp, app, many)
	limit := latestRuns + ` LIMIT ` + strconv.Itoa(most)
	ended := s.ofJobs(`j.app_id = $`+strconv.Itoa(len(ofApp.Args))) + s.db.EndedOfEach(w.Text, limit)
	return runQuery(unionOfRuns(ended, claimed, ofApp.Text, limit)), ofApp.Args
}

// Fires returns the scheduled runs of a job between two instants, for verify.
func (s *Store) Fires(ctx context.Context, job int64, from, to time.Time, limit int) ([]run.Key, error) {
	// $1 job, $2 from, $3 to
	const of = ` AS r WHERE r.job_id = $1 AND r.scheduled_at >= $2 AND r.scheduled_at <= $3 AND r.kind = 1`
	first := ` ORDER BY r.scheduled_at, r.trigger_id LIMIT ` + strconv.Itoa(limit)
	claimed, err := s.claimedNow(ctx)
	if err != nil {
		return nil, err
	}
	var list string
	for i, runs := range []string{db.EndedRuns, db.UnendedRuns, claimed} {
		if i > 0 {
			list += ` UNION ALL `
		}
		list += `SELECT * FROM (SELECT r.scheduled_at, r.trigger_id FROM (` + runs + `)` + of + first + `) AS part` + strconv.Itoa(i)
	}
	return db.Collect(ctx, s.db.Read, func(row db.Scanner) (run.Key, error) {
		key := run.Key{Kind: run.KindSchedule}
		err := row.Scan(db.InstantColumn(&key.ScheduledAt), &key.TriggerID)
		return key, err
	}, `SELECT * FROM (`+list+`) AS r`+first, job, from.UnixMilli(), to.UnixMilli())
}
