package store_test

import (
	"database/sql"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// An app that used all there is leaves nothing behind once it is deleted and its history is over.
func TestDeletedAppLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	database := newFile(t)
	m := moving{t: t, old: open(t, database), now: time.Now().UTC().Truncate(time.Second)}
	ctx, node := t.Context(), run.NodeID(7)
	_, _, err := m.old.PutApp(ctx, access.App{Name: "app",
		AppSpec: access.AppSpec{Enabled: true, Retention: input.Duration(days(7))}}, m.at(-time.Hour))
	must(t, err)
	useAll(m)
	must(t, m.old.Register(ctx, dispatcher.Node{ID: node, Name: "n", Version: "v"}, m.now))
	query := dispatcher.AdoptQuery{Node: node, Token: 9, Limit: 10, Now: m.now}
	for range 2 { // the run that is asked for, and what follows it
		_, err := m.old.FollowEnds(ctx, dispatcher.FollowQuery{Limit: 10, Now: m.now})
		must(t, err)
		found, err := m.old.Adoptable(ctx, query)
		must(t, err)
		held, err := m.old.Adopt(ctx, query, found)
		must(t, err)
		for _, r := range held {
			must(t, m.old.Record(ctx, []dispatcher.Record{{Key: r.Key, JobID: r.JobID, Revision: r.Revision, ClaimedAt: r.ClaimedAt,
				Node: node, Token: 9, Attempt: r.Attempt, Followed: true,
				Outcome: run.Outcome{State: run.Failed, StartedAt: m.now, EndedAt: m.now}}}))
		}
	}
	_, err = m.old.RollUpObjectives(ctx, 10, m.now)
	must(t, err)
	tables := []string{"run_inputs", "backfills", "backfill_runs", "pending_ends", "followers", "alert_events", "alert_states",
		"carried_states", "objectives", "objective_triggers", "objective_pending", "objective_counts", "app_pauses", "runs",
		"live_runs", "jobs", "triggers", "alerts"}
	used := rowsOf(t, database, tables)
	for _, table := range []string{"run_inputs", "backfills", "backfill_runs", "followers", "alert_events", "alert_states", "carried_states",
		"objectives", "objective_triggers", "app_pauses"} {
		if used[table] == 0 {
			t.Errorf("table %s has no row that could stay; let the app use it", table)
		}
	}
	must(t, m.old.DeleteJob(ctx, "app", "parent", m.at(0)))
	must(t, m.old.DeleteJob(ctx, "app", "child", m.at(0)))
	must(t, m.old.DeleteAlert(ctx, "app", "night", m.at(0)))
	must(t, m.old.DeleteApp(ctx, "app", m.at(0)))
	later := m.now.Add(days(30))
	for range 5 {
		endAll(m, node, later)
		_, err := m.old.Purge(ctx, node, later)
		must(t, err)
	}
	for table, rows := range rowsOf(t, database, tables) {
		if rows > 0 {
			t.Errorf("%d rows stay in table %s", rows, table)
		}
	}
}

// useAll lets an app have a job that another one follows, an alert, a state, an objective, a pause and a backfill.
func useAll(m moving) {
	m.t.Helper()
	ctx := m.t.Context()
	m.declare("child", nil)
	m.declare("parent", func(job *dispatcher.Job, _ *dispatcher.Trigger) {
		target := job.Target
		job.OnFailure = &dispatcher.Follow{Jobs: []string{"child"}, Target: &target, Payload: dispatcher.FollowResult}
		job.ConcurrencyPolicy, job.CarryState = run.ConcurrencyQueue, true
		job.Objective = &dispatcher.Objective{Within: input.Duration(time.Minute), Of: "90%"}
	})
	_, err := m.old.SetCarriedState(ctx, "app", "parent", json.RawMessage(`{"at":1}`), m.at(-time.Hour))
	must(m.t, err)
	a := alert.Alert{App: "app", Name: "night"}
	a.Failure, a.NoSuccessFor = &alert.Failures{After: 1}, input.Duration(time.Hour)
	a.Destination.Webhook = &target.AlertWebhook{}
	a.Destination.Webhook.SetDefaults()
	a.Destination.Webhook.URL = "https://pager.example.com/"
	_, _, err = m.old.PutAlert(ctx, a, m.at(-time.Hour))
	must(m.t, err)
	_, err = m.old.PauseApp(ctx, "app", dispatcher.AppPauseRequest{Reason: "a migration"}, m.at(-time.Minute))
	must(m.t, err)
	request := repeat.BackfillRequest{BackfillSpec: repeat.BackfillSpec{From: m.now.Add(-time.Hour), To: m.now}}
	request.SetDefaults()
	created, err := m.old.CreateBackfill(ctx, "app", "child", m.plan("child", request.BackfillSpec), m.at(-time.Minute))
	must(m.t, err)
	id, err := repeat.ParseBackfillID(created.ID)
	must(m.t, err)
	_, err = m.old.FeedBackfill(ctx, id, m.now)
	must(m.t, err)
	_, err = m.old.RequestRun(ctx, "app", "parent", nil, m.at(-time.Minute))
	must(m.t, err)
}

// endAll does what nodes do for jobs that are deleted: it ends their runs, follows these, and ends backfills and objectives.
func endAll(m moving, node run.NodeID, now time.Time) {
	m.t.Helper()
	ctx := m.t.Context()
	query := dispatcher.AdoptQuery{Node: node, Token: 9, Limit: 10, Now: m.now}
	found, err := m.old.Adoptable(ctx, query)
	must(m.t, err)
	held, err := m.old.Adopt(ctx, query, found)
	must(m.t, err)
	for _, r := range held {
		must(m.t, m.old.Record(ctx, []dispatcher.Record{{Key: r.Key, JobID: r.JobID, Revision: r.Revision,
			ClaimedAt: r.ClaimedAt, Node: node, Token: 9, Attempt: r.Attempt, Followed: true,
			Outcome: run.Outcome{State: run.Failed, StartedAt: m.now, EndedAt: m.now}}}))
	}
	_, err = m.old.FollowEnds(ctx, dispatcher.FollowQuery{Limit: 10, Now: m.now})
	must(m.t, err)
	open, err := m.old.OpenBackfills(ctx)
	must(m.t, err)
	for _, one := range open {
		_, err := m.old.FeedBackfill(ctx, one.ID, m.now)
		must(m.t, err)
	}
	_, err = m.old.RollUpObjectives(ctx, 10, now)
	must(m.t, err)
}

// rowsOf counts the rows of tables.
func rowsOf(t *testing.T, database string, tables []string) map[string]int {
	t.Helper()
	db, err := sql.Open("sqlite", strings.TrimPrefix(database, "sqlite:")+"?_pragma=busy_timeout(5000)")
	must(t, err)
	defer func() { must(t, db.Close()) }()
	rows := map[string]int{}
	for _, table := range tables {
		var n int
		must(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM `+table).Scan(&n))
		rows[table] = n
	}
	return rows
}
