package reads

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// misfireQuery completes a query for rows of misfires to one that scanMisfire reads.
func misfireQuery(picked string) string {
	return `SELECT a.name, j.name, t.name, m.job_id, m.trigger_id, m.from_at, m.to_at, m.count, m.decision, m.reason, m.catch_up,
		m.node, m.decided_at
		FROM (` + picked + `) AS m JOIN jobs AS j ON j.id = m.job_id JOIN apps AS a ON a.id = j.app_id
		JOIN triggers AS t ON t.id = m.trigger_id`
}

// triggerThere is the condition that the trigger of a misfire r is not yet purged. Others have no name to be shown.
const triggerThere = `EXISTS (SELECT 1 FROM triggers AS t WHERE t.id = r.trigger_id)`

func scanMisfire(row db.Scanner) (dispatcher.Misfire, error) {
	var m dispatcher.Misfire
	var catchUp *time.Time
	var node run.NodeID
	err := row.Scan(&m.App, &m.Job, &m.Trigger, &m.JobID, &m.TriggerID, db.InstantColumn(&m.From), db.InstantColumn(&m.To), &m.Count,
		&m.Decision,
		&m.Reason, db.OptionalColumn(&catchUp), &node, db.InstantColumn(&m.DecidedAt))
	if catchUp != nil {
		m.Run = run.Key{TriggerID: m.TriggerID, ScheduledAt: *catchUp, Kind: run.KindCatchUp}.String()
	}
	if node != 0 {
		m.Node = &node
	}
	return m, err
}

// Misfires returns a page of the decisions about missed fires, latest first.
func (s *Store) Misfires(ctx context.Context, query dispatcher.RunQuery) ([]dispatcher.Misfire, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	of, err := s.IDsOf(ctx, query.App, query.Job, query.Trigger)
	if err != nil {
		return nil, err
	}
	w, err := misfireConditions(query)
	if err != nil {
		return nil, err
	}
	if query.Job != "" {
		w.Add("r.job_id = %s", of.Job)
	}
	if query.Trigger != "" {
		w.Add("r.trigger_id = %s", of.trigger)
	}
	if query.App != "" && query.Job == "" {
		return s.misfiresOfApp(ctx, query, w)
	}
	return s.latestMisfires(ctx, w, query.Page.Limit)
}

// misfireConditions returns those of a query that name neither app nor job.
func misfireConditions(query dispatcher.RunQuery) (w db.Conditions, err error) {
	w.Add("r.from_at >= %s", int64(math.MinInt64)) // as db.LatestOfEach wants it
	if !query.From.IsZero() {
		w.Add("r.to_at >= %s", query.From.UnixMilli())
	}
	if !query.To.IsZero() {
		w.Add("r.from_at <= %s", query.To.UnixMilli())
	}
	if query.Page.Cursor != "" {
		key, err := run.ParseKey(query.Page.Cursor)
		if err != nil {
			return w, fmt.Errorf("cursor %s: %w", input.Echo(query.Page.Cursor), err)
		}
		w.Add("(r.from_at, r.trigger_id) < (%s, %s)", key.ScheduledAt.UnixMilli(), key.TriggerID)
	}
	return w, nil
}

// latestFirst orders misfires r as lists show them, those that are limited to a page.
func latestFirst(limit int) string {
	return ` ORDER BY r.from_at DESC, r.trigger_id DESC LIMIT ` + strconv.Itoa(limit)
}

// latestMisfires returns those that meet conditions.
func (s *Store) latestMisfires(ctx context.Context, w db.Conditions, limit int) ([]dispatcher.Misfire, error) {
	picked := `SELECT r.* FROM misfires AS r WHERE ` + triggerThere + w.Text + latestFirst(limit)
	return db.Collect(ctx, s.db.Read, scanMisfire, misfireQuery(picked)+` ORDER BY m.from_at DESC, m.trigger_id DESC`, w.Args...)
}

// misfiresOfApp returns the latest misfires of an app: those of many jobs by a walk through the misfires of all apps, as the lists of
// runs do, and what is before that job by job.
func (s *Store) misfiresOfApp(ctx context.Context, query dispatcher.RunQuery, w db.Conditions) ([]dispatcher.Misfire, error) {
	app := run.AppID(query.App)
	many, err := s.HasManyJobs(ctx, app, s.Walks.Jobs)
	if err != nil {
		return nil, err
	}
	if !many {
		return s.misfiresOfJobs(ctx, app, w, query.Page.Limit)
	}
	end, err := s.walkEnd(ctx, w, s.Walks.Rows, `r.from_at`, `misfires AS r WHERE 1 = 1`)
	if err != nil {
		return nil, err
	}
	past := w
	if end != nil {
		past.Add("r.from_at >= %s", *end)
	}
	past.Add(ofAppID, app)
	page, err := s.latestMisfires(ctx, past, query.Page.Limit)
	if err != nil || end == nil || len(page) == query.Page.Limit {
		return page, err
	}
	w.Add("r.from_at < %s", *end)
	further, err := s.misfiresOfJobs(ctx, app, w, query.Page.Limit-len(page))
	return append(page, further...), err
}

// misfiresOfJobs looks for the latest misfires of an app job by job.
func (s *Store) misfiresOfJobs(ctx context.Context, app int64, of db.Conditions, limit int) ([]dispatcher.Misfire, error) {
	// $1 app
	jobs, err := db.Collect(ctx, s.db.Read, db.ScanInt, `SELECT id FROM jobs WHERE app_id = $1 ORDER BY id`, app)
	if err != nil || len(jobs) == 0 {
		return nil, err
	}
	picked := s.db.Rows(0, len(of.Args)+1, "", db.IDColumns...) + ` SELECT r.* FROM (` +
		s.db.LatestOfEach(`r.*`, `misfires`, `r.from_at`, triggerThere+of.Text, limit) + `) AS r` + latestFirst(limit)
	return db.Collect(ctx, s.db.Read, scanMisfire, misfireQuery(picked)+` ORDER BY m.from_at DESC, m.trigger_id DESC`,
		append(of.Args[:len(of.Args):len(of.Args)], s.db.Batch(jobs)...)...)
}
