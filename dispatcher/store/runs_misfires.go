package store

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
	of, err := s.idsOf(ctx, query.App, query.Job, query.Trigger)
	if err != nil {
		return nil, err
	}
	w, err := misfireConditions(query)
	if err != nil {
		return nil, err
	}
	if query.Job != "" {
		w.Add("r.job_id = %s", of.job)
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
	many, err := s.hasManyJobs(ctx, app, s.walks.jobs)
	if err != nil {
		return nil, err
	}
	if !many {
		return s.misfiresOfJobs(ctx, app, w, query.Page.Limit)
	}
	end, err := s.walkEnd(ctx, w, s.walks.rows, `r.from_at`, `misfires AS r WHERE 1 = 1`)
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

// insertMisfires records what a change of a definition decided, and queues the runs that follow from it.
func insertMisfires(ctx context.Context, t *tx, missed []dispatcher.Misfire) error {
	if len(missed) == 0 {
		return nil
	}
	var from, to, trigger, job, count, decided []int64
	var decision, reason []string
	var catchUp []*int64
	var runs []dispatcher.Misfire
	for _, m := range missed {
		if m.Run != "" {
			runs = append(runs, m)
		}
		if m.Decision == dispatcher.DecisionFireAll {
			continue // its run explains it
		}
		from, to = append(from, m.From.UnixMilli()), append(to, m.To.UnixMilli())
		trigger, job = append(trigger, m.TriggerID), append(job, m.JobID)
		count, decided = append(count, int64(m.Count)), append(decided, m.DecidedAt.UnixMilli())
		decision, reason = append(decision, string(m.Decision)), append(reason, m.Reason)
		catchUp = append(catchUp, nil)
		if m.Run != "" {
			catchUp[len(catchUp)-1] = new(m.To.UnixMilli())
		}
	}
	if err := queueSettled(ctx, t, runs); err != nil || len(from) == 0 {
		return err
	}
	batch := t.Batch(from, to, trigger, job, count, decision, reason, decided, catchUp)
	// From $1 on: db.MisfireColumns
	insert := t.Rows(0, 1, "", db.MisfireColumns...) + ` INSERT INTO misfires (from_at, to_at, trigger_id, job_id, count, decision,
		reason, catch_up, node, decided_at)
		SELECT b.from_at, b.to_at, b.trigger_id, b.job_id, b.missed, b.decision, b.reason, b.run_at, 0, b.decided_at FROM b WHERE 1 = 1
		ON CONFLICT DO NOTHING`
	if _, err := t.ExecContext(ctx, insert, batch...); err != nil {
		return fmt.Errorf("insert %d misfires: %w", len(from), err)
	}
	// From $1 on: db.MisfireColumns
	follow := t.Rows(0, 1, "", db.MisfireColumns...) + ` INSERT INTO pending_ends (ended_at, trigger_id, scheduled_at, kind, job_id, app_id,
		attempt, http_status, state, class, error)
		SELECT b.decided_at, b.trigger_id, b.from_at, 0, b.job_id, j.app_id, 0, 0, '', '', '' FROM b
		JOIN jobs AS j ON j.id = b.job_id AND j.follows <> 0 WHERE (j.follows & 12) <> 0 ON CONFLICT DO NOTHING`
	if _, err := t.ExecContext(ctx, follow, batch...); err != nil {
		return fmt.Errorf("follow %d misfires: %w", len(from), err)
	}
	return notifyEnds(ctx, t)
}

// queueSettled queues the runs of pending fires that a change of a definition settled. They wait as retries do: until they are
// due, and as long as a pause or a switch holds the job or the trigger.
func queueSettled(ctx context.Context, t *tx, settled []dispatcher.Misfire) error {
	runs, due := make([]queuedRun, 0, len(settled)), make(map[run.Key]int64, len(settled))
	for _, m := range settled {
		key, err := run.ParseKey(m.Run)
		if err != nil {
			return fmt.Errorf("run %s: %w", m.Run, err)
		}
		runs, due[key] = append(runs, queuedRun{Key: key, jobID: m.JobID}), m.RunDueAt.UnixMilli()
	}
	queued, err := queueRuns(ctx, t, runs)
	if err != nil || len(queued) == 0 {
		return err
	}
	k := db.NewKeys(len(queued))
	dueAt := make([]int64, 0, len(queued))
	for _, key := range queued {
		k.Add(key, 0, 0)
		dueAt = append(dueAt, due[key])
	}
	// From $1 on: db.SettledColumns
	wait := t.Rows(0, 1, "", db.SettledColumns...) + ` UPDATE live_runs AS r SET state = 'retrying', next_attempt_at = b.due,
		revision = (SELECT j.revision FROM jobs AS j WHERE j.id = r.job_id)
		FROM b WHERE r.scheduled_at = b.scheduled_at AND r.trigger_id = b.trigger_id AND r.kind = b.kind`
	if _, err := t.ExecContext(ctx, wait, t.Batch(k.At, k.Trigger, k.Kind, dueAt)...); err != nil {
		return fmt.Errorf("queue %d runs of pending fires: %w", len(queued), err)
	}
	return nil
}
