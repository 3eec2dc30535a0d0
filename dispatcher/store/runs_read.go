package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
)

// runQuery completes a query for rows of runs, named r, to one for runs with their names.
func runQuery(picked string) string {
	return `SELECT i.id, a.name, j.name, coalesce(t.name, ''), r.scheduled_at, r.trigger_id, r.kind, r.revision, r.state,
			r.attempt, r.node, r.claimed_at, r.started_at, r.ended_at, r.next_attempt_at, r.http_status, r.class, r.error, m.from_at,
			m.to_at, m.count
		FROM (` + picked + `) AS r
		JOIN jobs AS j ON j.id = r.job_id JOIN apps AS a ON a.id = j.app_id LEFT JOIN triggers AS t ON t.id = r.trigger_id
		LEFT JOIN misfires AS m ON m.job_id = CASE WHEN r.kind = 3 THEN r.job_id END AND m.from_at <= r.scheduled_at
			AND m.trigger_id = r.trigger_id AND m.catch_up = r.scheduled_at
		CROSS JOIN installation AS i
		ORDER BY r.scheduled_at DESC, r.trigger_id DESC, r.kind DESC`
}

func scanRun(row scanner) (dispatcher.Run, error) {
	var run dispatcher.Run
	var installation string
	var key dispatcher.RunKey
	var node dispatcher.NodeID
	var from, to, missed *int64
	err := row.Scan(&installation, &run.App, &run.Job, &run.Trigger, instantColumn(&key.ScheduledAt), &key.TriggerID,
		kindColumn(&key.Kind), &run.Revision, &run.State, &run.Attempt, &node, optionalColumn(&run.ClaimedAt),
		optionalColumn(&run.StartedAt), optionalColumn(&run.EndedAt), optionalColumn(&run.NextAttemptAt), &run.HTTPStatus,
		&run.Class, &run.Error, &from, &to, &missed)
	if err != nil {
		return run, err
	}
	run.ID, run.Kind, run.ScheduledAt = key.String(), key.Kind, key.ScheduledAt
	run.EventID = dispatcher.EventID(installation, run.App, run.Job, run.Trigger, run.ScheduledAt, run.Kind)
	if node != 0 && node != waitingNode {
		run.Node = &node
	}
	if from != nil && to != nil && missed != nil {
		run.Missed = &dispatcher.MissedRange{From: instant(*from), To: instant(*to), Count: int(*missed)}
	}
	return run, nil
}

// Runs reads the history of a job or trigger from runs_ended, and its live runs from
// runs_live; the runs of an app or of all apps come from the primary key, backwards. For
// a small app among busy ones, the latter steps over the runs of others.
func (s *store) Runs(ctx context.Context, query dispatcher.RunQuery) ([]dispatcher.Run, error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	if err := s.mustExist(ctx, query.App, query.Job, query.Trigger); err != nil {
		return nil, err
	}
	var w conditions
	if !query.From.IsZero() {
		w.add("r.scheduled_at >= %s", query.From.UnixMilli())
	}
	if !query.To.IsZero() {
		w.add("r.scheduled_at <= %s", query.To.UnixMilli())
	}
	if query.State != "" {
		w.add("r.state = %s", string(query.State))
	}
	if query.Trigger != "" {
		w.add("r.trigger_id = %s", dispatcher.TriggerID(query.App, query.Job, query.Trigger))
	}
	if query.Page.Cursor != "" {
		key, err := dispatcher.ParseRunKey(query.Page.Cursor)
		if err != nil {
			return nil, fmt.Errorf("cursor %s: %w", dispatcher.Echo(query.Page.Cursor), err)
		}
		w.add("(r.scheduled_at, r.trigger_id, r.kind) < (%s, %s, %s)", key.ScheduledAt.UnixMilli(), key.TriggerID, int64(key.Kind.Code()))
	}
	limit := ` ORDER BY r.scheduled_at DESC, r.trigger_id DESC, r.kind DESC LIMIT ` + strconv.Itoa(query.Page.Limit)
	switch {
	case query.Job != "":
		w.add("r.job_id = %s", dispatcher.JobID(query.App, query.Job))
		const held = ` AND r.node IN (` + holders + `)`
		return collect(ctx, s.read, scanRun, runQuery(`SELECT * FROM (
			SELECT * FROM (SELECT * FROM runs AS r WHERE NOT r.live`+w.and()+limit+`) AS ended UNION ALL
			SELECT * FROM (SELECT * FROM runs AS r WHERE r.live`+w.and()+held+limit+`) AS live) AS r`+limit), w.args...)
	case query.App != "":
		w.add("j.app_id = %s", dispatcher.AppID(query.App))
	}
	const picked = `SELECT r.* FROM runs AS r JOIN jobs AS j ON j.id = r.job_id WHERE 1 = 1`
	return collect(ctx, s.read, scanRun, runQuery(picked+w.and()+limit), w.args...)
}

// where collects conditions and their parameters.
type conditions struct {
	conditions strings.Builder
	args       []any
}

// add adds a condition; each %s in it stands for a parameter.
func (w *conditions) add(condition string, args ...any) {
	names := make([]any, len(args))
	for i := range args {
		names[i] = "$" + strconv.Itoa(len(w.args)+i+1)
	}
	w.args = append(w.args, args...)
	fmt.Fprintf(&w.conditions, " AND "+condition, names...)
}

func (w *conditions) and() string { return w.conditions.String() }

// known returns ErrNotFound if one of the names that are not empty never existed.
func (s *store) mustExist(ctx context.Context, app, job, trigger string) error {
	for _, n := range []struct {
		kind, table, name, shown string
		id                       int64
	}{
		{"app", "apps", app, app, dispatcher.AppID(app)},
		{"job", "jobs", job, app + "/" + job, dispatcher.JobID(app, job)},
		{"trigger", "triggers", trigger, app + "/" + job + "/" + trigger, dispatcher.TriggerID(app, job, trigger)},
	} {
		if n.name == "" {
			continue
		}
		// $1 id
		_, found, err := first(ctx, s.read, scanInt, `SELECT 1 FROM `+n.table+` WHERE id = $1`, n.id)
		if err != nil {
			return err
		}
		if !found {
			return dispatcher.NotFound(n.kind, n.shown)
		}
	}
	return nil
}

// Run returns a run with its attempts.
func (s *store) Run(ctx context.Context, id string) (dispatcher.Run, error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	return findRun(ctx, s.read, id)
}

// oneRun is the run of a key, found in one partition.
// $1 scheduled instant, $2 trigger, $3 kind
const oneRun = `SELECT * FROM runs WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3`

// findRun returns a run with its attempts, or ErrNotFound.
func findRun(ctx context.Context, q querier, id string) (dispatcher.Run, error) {
	key, err := dispatcher.ParseRunKey(id)
	if err != nil {
		return dispatcher.Run{}, dispatcher.NotFound("run", id)
	}
	args := []any{key.ScheduledAt.UnixMilli(), key.TriggerID, int64(key.Kind.Code())}
	run, found, err := first(ctx, q, scanRun, runQuery(oneRun), args...)
	if err != nil || !found {
		if err == nil {
			err = dispatcher.NotFound("run", id)
		}
		return run, err
	}
	// $1 scheduled instant, $2 trigger, $3 kind
	const attempts = `SELECT attempt, node, state, started_at, ended_at, http_status, class, error, late_result
		FROM attempts WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3 ORDER BY attempt`
	if run.Attempts, err = collect(ctx, q, scanAttempt, attempts, args...); err != nil {
		return run, err
	}
	if latest, ok := latestAttempt(run); ok {
		run.Attempts = append(run.Attempts, latest)
	}
	return run, addResponses(ctx, q, run.Attempts, args)
}

func scanAttempt(row scanner) (dispatcher.Attempt, error) {
	var a dispatcher.Attempt
	var late *string
	err := row.Scan(&a.Attempt, &a.Node, &a.State, instantColumn(&a.StartedAt), instantColumn(&a.EndedAt), &a.HTTPStatus,
		&a.Class, &a.Error, &late)
	if err != nil {
		return a, err
	}
	if late != nil {
		if err := json.Unmarshal([]byte(*late), &a.Late); err != nil {
			return a, fmt.Errorf("late result: %w", err)
		}
	}
	return a, nil
}

// latestAttempt returns the attempt that a run's own row holds, if it has ended and is not
// among those that have rows.
func latestAttempt(run dispatcher.Run) (dispatcher.Attempt, bool) {
	listed := slices.ContainsFunc(run.Attempts, func(a dispatcher.Attempt) bool { return a.Attempt == run.Attempt })
	if listed || run.Attempt == 0 || run.EndedAt == nil || run.StartedAt == nil || run.Node == nil {
		return dispatcher.Attempt{}, false
	}
	return dispatcher.Attempt{
		Attempt: run.Attempt, Node: *run.Node, State: run.State, StartedAt: *run.StartedAt, EndedAt: *run.EndedAt,
		HTTPStatus: run.HTTPStatus, Class: run.Class, Error: run.Error,
	}, true
}
