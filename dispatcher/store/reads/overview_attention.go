package reads

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/definitions"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// Attention returns everything that needs attention: each kind by one or a few statements over small tables, such as
// the pauses, or by an index in the order of the list.
func (s *Store) Attention(ctx context.Context, apps []string, now time.Time) (view.Attention, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	now, err := s.db.OrClock(ctx, now)
	if err != nil {
		return view.Attention{}, err
	}
	l := s.lookAt(apps)
	l.at, l.since, l.found.At = now, now.Add(-view.AttentionSpan), now
	for _, look := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"runs that failed", l.failed}, {"misfires", l.misfires}, {"overdue triggers", l.overdue},
		{"triggers in error", l.quarantined}, {"pauses", l.pauses}, {"alerts that fire", l.alerts},
		{"objectives in danger", l.objectives}, {"open circuits", l.circuits},
		{"blocked jobs", l.blocked}, {"ends that were set aside", l.setAside},
		{"groups without endpoints", l.silent}, {"secrets that fail", l.credentials}, {"certificates that end", l.certificates},
		{"history that should be gone", l.retention}, {"nodes", l.nodes},
	} {
		if err := look.do(ctx); err != nil {
			return l.found, fmt.Errorf("look for %s: %w", look.what, err)
		}
	}
	return l.found, nil
}

// looker finds causes for attention.
type looker struct {
	*Store
	apps      []int64 // empty: all
	at, since time.Time
	found     view.Attention

	failures        []failure // the latest of the apps, latest first
	furtherFailures bool      // some apps have failures before all that were examined
}

// lookAt returns a looker at some apps, or at all.
func (s *Store) lookAt(apps []string) *looker {
	l := &looker{Store: s}
	for _, app := range apps {
		l.apps = append(l.apps, run.AppID(app))
	}
	return l
}

// ofApps is the condition, with AND in front, that a column is the id of one of the apps; empty for all apps.
func (l *looker) ofApps(column string, args *definitions.StatementArgs) string {
	if len(l.apps) == 0 {
		return ""
	}
	*args = append(*args, l.db.List(l.apps))
	return ` AND ` + column + l.db.In(len(*args))
}

// shownMost is the LIMIT of a list: the shown items, and one more.
const shownMost = view.MaxAttention + 1

// begin returns the beginning of a list; an empty one is not null in JSON.
func begin[T any](all []T) view.Newest[T] {
	if len(all) > view.MaxAttention {
		return view.Newest[T]{Items: all[:view.MaxAttention], More: true}
	}
	return view.Newest[T]{Items: append([]T{}, all...)}
}

// foundFirst collects the beginning of a list.
func foundFirst[T any](ctx context.Context, l *looker, scan func(db.Scanner) (T, error), query string, args ...any) (
	view.Newest[T], error,
) {
	all, err := db.Collect(ctx, l.db.Read, scan, query+` LIMIT `+strconv.Itoa(shownMost), args...)
	return begin(all), err
}

// misfires finds misfires, by the time of their decisions.
func (l *looker) misfires(ctx context.Context) (err error) {
	args := definitions.StatementArgs{l.since.UnixMilli()}
	l.found.Misfires, err = foundFirst(ctx, l, scanMisfire, misfireQuery(`SELECT * FROM misfires`)+` WHERE m.decided_at >= $1`+
		l.ofApps(`j.app_id`, &args)+` ORDER BY m.decided_at DESC, m.from_at DESC, m.trigger_id DESC`, args...)
	return err
}

// overdue finds triggers that are due and not claimed, also those that no node serves.
func (l *looker) overdue(ctx context.Context) (err error) {
	args := definitions.StatementArgs{l.at.Add(-view.OverdueAfter).UnixMilli()}
	due := dispatch.Unclaimed(` AND c.due_at <= $1`+l.ofApps(`c.app_id`, &args), strconv.Itoa(shownMost))
	l.found.Overdue, err = foundFirst(ctx, l, func(row db.Scanner) (t view.OverdueTrigger, err error) {
		err = row.Scan(&t.App, &t.Job, &t.Trigger, db.InstantColumn(&t.NextFireTime), db.InstantColumn(&t.DueAt))
		t.Overdue = input.Duration(l.at.Sub(t.DueAt))
		return t, err
	}, `SELECT j.app, j.name, t.name, coalesce(c.next_fire_time, c.due_at), c.due_at FROM (`+due+`) AS c
		JOIN triggers AS t ON t.id = c.id JOIN jobs AS j ON j.id = t.job_id ORDER BY c.due_at, c.id`, args...)
	return err
}

// quarantined finds triggers in state error. They are few, so they are read first, whatever the apps.
func (l *looker) quarantined(ctx context.Context) (err error) {
	var args definitions.StatementArgs
	l.found.Quarantined, err = foundFirst(ctx, l, func(row db.Scanner) (t view.QuarantinedTrigger, err error) {
		err = row.Scan(&t.App, &t.Job, &t.Trigger, &t.Error)
		return t, err
	}, `SELECT j.app, j.name, t.name, t.error FROM triggers AS t JOIN trigger_clock AS c ON c.id = t.id JOIN jobs AS j ON j.id = t.job_id
		WHERE t.error <> '' AND t.deleted_at IS NULL AND c.state = 'error'`+l.ofApps(`t.app_id + 0`, &args)+`
		ORDER BY j.app, j.name, t.name`, args...)
	return err
}

// pauses finds pauses of users, the longest first.
func (l *looker) pauses(ctx context.Context) error {
	var args, ofApps definitions.StatementArgs
	limit := ` LIMIT ` + strconv.Itoa(shownMost)
	scan := func(row db.Scanner) (p view.StandingPause, err error) {
		err = row.Scan(&p.App, &p.Job, &p.Trigger, dispatch.PauseColumn(&p.Pause))
		return p, err
	}
	all, err := db.Collect(ctx, l.db.Read, scan, `SELECT * FROM (SELECT j.app, j.name, '', j.pause FROM jobs AS j
			WHERE j.paused_at IS NOT NULL AND j.deleted_at IS NULL`+l.ofApps(`j.app_id`, &args)+` ORDER BY j.paused_at`+limit+`) AS of_jobs
		UNION ALL SELECT * FROM (SELECT j.app, j.name, t.name, t.pause FROM triggers AS t JOIN jobs AS j ON j.id = t.job_id
			WHERE t.paused_at IS NOT NULL AND t.deleted_at IS NULL`+l.ofApps(`t.app_id`, &args)+` ORDER BY t.paused_at`+limit+`) AS of_triggers`,
		args...)
	if err != nil {
		return err
	}
	apps, err := db.Collect(ctx, l.db.Read, definitions.ScanAppPause, `SELECT `+definitions.PauseColumns+
		` FROM app_pauses AS p JOIN apps AS a ON a.id = p.app_id
		WHERE p.ended_at IS NULL AND a.deleted_at IS NULL`+l.ofApps(`p.app_id`, &ofApps)+` ORDER BY p.paused_at, p.id`+limit, ofApps...)
	if err != nil {
		return err
	}
	for _, p := range apps {
		all = append(all, view.StandingPause{App: p.App, AppPause: p.ID, Labels: p.Labels, Pause: dispatcher.Pause{
			PausedBy: p.PausedBy, PausedAt: &p.PausedAt, PauseReason: p.Reason, PausedUntil: p.Until,
		}})
	}
	slices.SortStableFunc(all, func(a, b view.StandingPause) int {
		return cmp.Or(db.Zeroable(a.PausedAt).Compare(db.Zeroable(b.PausedAt)), cmp.Compare(a.App, b.App), cmp.Compare(a.Job, b.Job))
	})
	l.found.Paused = begin(all)
	return nil
}

// examinedAlerts is how many firing conditions, those of the worst severity first, are examined for the worst.
const examinedAlerts = 500

// alerts finds firing conditions, the worst first.
func (l *looker) alerts(ctx context.Context) error {
	var w db.Conditions
	w.Text = " AND s.firing"
	if len(l.apps) > 0 {
		w.Args = append(w.Args, l.db.List(l.apps))
		w.Text += " AND a.app_id" + l.db.In(len(w.Args))
	}
	states, err := l.listAlertStates(ctx, l.db.Read, w, ` ORDER BY a.severity, a.id LIMIT `+strconv.Itoa(examinedAlerts), l.at)
	slices.SortFunc(states, alert.State.Compare)
	l.found.Alerts = begin(states)
	return err
}

// circuits finds hosts that runs wait for. The circuits themselves are in the memory of each node; a run that one of
// them defers leaves a row.
func (l *looker) circuits(ctx context.Context) (err error) {
	var args definitions.StatementArgs
	l.found.Circuits, err = foundFirst(ctx, l, func(row db.Scanner) (c view.OpenCircuit, err error) {
		var since *time.Time
		err = row.Scan(&c.App, &c.Host, &c.Jobs, &c.Job, db.InstantColumn(&c.ProbeAt), &c.Runs, db.OptionalColumn(&since), &c.Error)
		c.Since = db.Zeroable(since)
		return c, err
	}, `SELECT c.app, c.host, c.jobs, c.job, c.probe_at, (SELECT count(*) FROM (SELECT 1`+waiters+`) AS r),
			(SELECT min(r.scheduled_at) FROM (SELECT r.scheduled_at`+waiters+`) AS r),
			coalesce((SELECT r.error FROM (SELECT r.error, r.attempt`+waiters+`) AS r ORDER BY r.attempt DESC LIMIT 1), '')
		FROM (SELECT w.app_id, a.name AS app, w.host, count(*) AS jobs, min(j.name) AS job, min(w.probe_at) AS probe_at
			FROM host_waits AS w JOIN jobs AS j ON j.id = w.job_id JOIN apps AS a ON a.id = w.app_id
			WHERE w.pause > 0`+l.ofApps(`w.app_id`, &args)+` GROUP BY w.app_id, a.name, w.host) AS c
		ORDER BY c.jobs DESC, c.app, c.host`, args...)
	return err
}

// setAside finds rows that were set aside, and then ends whose followers could not be queued.
func (l *looker) setAside(ctx context.Context) error {
	var args definitions.StatementArgs
	rows := dispatch.SetAsideRows(l.at, l.ofApps(`x.app_id`, &args))
	aside, err := db.Collect(ctx, l.db.Read, dispatch.ScanSetAside, rows+` LIMIT `+strconv.Itoa(shownMost), args...)
	if err != nil {
		return err
	}
	args = nil
	// The end of a deleted job belongs to no app.
	chosen := `SELECT * FROM pending_ends AS e WHERE e.try_at > 0`
	if len(l.apps) > 0 {
		chosen += ` AND EXISTS (SELECT 1 FROM jobs AS of WHERE of.id = e.job_id` + l.ofApps(`of.app_id`, &args) + `)`
	}
	chosen += ` ORDER BY e.ended_at LIMIT ` + strconv.Itoa(shownMost)
	ends, err := db.Collect(ctx, l.db.Read, dispatch.ScanPendingEnd, dispatch.PendingEnds(chosen), args...)
	for i := range ends {
		aside = append(aside, ends[i].SetAside())
	}
	l.found.SetAside = begin(aside)
	return err
}

// waiters are some of the runs r that wait for a host c.
var waiters = ` FROM host_waits AS o JOIN live_runs AS r ON r.waits_for = o.id AND r.waits_for <> 0
	WHERE o.app_id = c.app_id AND o.host = c.host LIMIT ` + strconv.Itoa(view.MaxWaitingRuns)

// nodes finds unhealthy nodes, and a rollback, for users who may see all apps. Vanished nodes stay in the database
// until they are purged, and a fleet that scales up and down may leave thousands.
func (l *looker) nodes(ctx context.Context) error {
	if len(l.apps) > 0 {
		return nil
	}
	// A node of the same name that started since has taken its place.
	const vanished = `FROM nodes AS n WHERE n.state = 'dead' AND NOT n.deregistered AND NOT EXISTS (
		SELECT 1 FROM nodes AS o WHERE o.name = n.name AND o.state <> 'dead' AND o.started_at > n.heartbeat_at)`
	var vanishedInAll int
	// $1 since when
	nodes, err := db.Collect(ctx, l.db.Read, func(row db.Scanner) (dispatcher.Node, error) {
		return dispatch.ScanNode(db.WiderRow{Scanner: row, After: []any{&vanishedInAll}})
	}, `SELECT `+dispatch.NodeColumns+`, (SELECT count(*) `+vanished+`) FROM nodes WHERE state <> 'dead' OR id IN (
			SELECT n.id `+vanished+` AND n.heartbeat_at >= $1 ORDER BY n.heartbeat_at DESC, n.id LIMIT `+strconv.Itoa(view.MaxAttention)+`)
		ORDER BY state <> 'dead', CASE WHEN state = 'dead' THEN -heartbeat_at END, name, started_at, id`, l.since.UnixMilli())
	if err != nil {
		return err
	}
	dispatcher.CompleteNodes(nodes, l.at)
	unwell := view.Unwell(nodes, l.at)
	listed := unwell[:min(len(unwell), view.MaxAttention)]
	for _, node := range unwell {
		if node.State == dispatcher.NodeDead {
			vanishedInAll--
		}
	}
	l.found.Nodes, l.found.MoreNodes = listed, len(unwell)-len(listed)+vanishedInAll
	l.found.Rollback, err = l.dispatch.Rollback(ctx)
	return err
}

// blockedJobs are the jobs j whose later fires only wait or are skipped, because a run has had a slot s of the job for
// unusually long: longer than view.BlockedAfter, and than view.BlockedTimes the longest of its latest runs. Slots are as
// few as runs in flight. A job with several slots goes on as long as one of its later fires begins.
// $1 now, $2 since when a slot must be taken
var blockedJobs = `slots AS s JOIN jobs AS j ON j.id = s.job_id LEFT JOIN live_runs AS r
		ON r.scheduled_at = s.scheduled_at AND r.trigger_id = s.trigger_id AND r.kind = s.kind
	WHERE s.endpoint = '' AND s.node >= 0 AND s.since <= $2 AND j.deleted_at IS NULL
	AND $1 - s.since > ` + strconv.Itoa(view.BlockedTimes) + ` * coalesce((SELECT max(h.started_ms) FROM (SELECT h.started_ms FROM runs AS h
		WHERE h.job_id = s.job_id AND h.scheduled_at < s.scheduled_at AND h.started_ms IS NOT NULL
		ORDER BY h.scheduled_at DESC LIMIT ` + strconv.Itoa(view.BlockedRuns) + `) AS h), 0)
	AND (` + waitsSince + ` <= $2 OR ` + skippedAfter + ` >= ` + strconv.Itoa(view.BlockedSkips) + `)
	AND NOT EXISTS (SELECT 1 FROM runs AS h WHERE h.job_id = s.job_id AND h.scheduled_at > s.scheduled_at AND h.started_ms IS NOT NULL LIMIT 1)
	AND NOT EXISTS (SELECT 1 FROM live_runs AS l WHERE l.job_id = s.job_id AND l.scheduled_at > s.scheduled_at AND l.attempt > 0 LIMIT 1)`

const (
	// waitsSince is when the first run of the job that waits for the slot was scheduled; NULL: none waits.
	waitsSince = `(SELECT min(l.scheduled_at) FROM live_runs AS l WHERE l.job_id = s.job_id AND l.state = 'queued' AND l.node = -1)`
	// skippedAfter counts the later fires that were skipped.
	skippedAfter = `(SELECT count(*) FROM (SELECT 1 FROM runs AS h WHERE h.job_id = s.job_id AND h.scheduled_at > s.scheduled_at
		AND h.state = 'skipped' LIMIT 1000) AS h)`
)

// BlockedJob is a job that a slot blocks, with its key and that of the run that has the slot.
type BlockedJob struct {
	view.Blockage
	ID      int64
	Blocker run.Key
}

// BlockedJobs returns the blocked jobs that a condition on jobs j selects. rest is the condition, the order and the limit,
// with arguments from $3 on.
func BlockedJobs(ctx context.Context, q db.Querier, now time.Time, rest string, args []any) ([]BlockedJob, error) {
	since := now.Add(-view.BlockedAfter).UnixMilli()
	// PostgreSQL plans the statement below over each partition five times, and mostly no slot is taken for so long.
	_, taken, err := db.First(ctx, q, db.ScanInt, `SELECT 1 FROM slots AS s
		WHERE s.endpoint = '' AND s.node >= 0 AND s.since <= $1 LIMIT 1`, since)
	if err != nil || !taken {
		return nil, err
	}
	return db.Collect(ctx, q, func(row db.Scanner) (b BlockedJob, err error) {
		var node run.NodeID
		err = row.Scan(&b.ID, &b.App, &b.Job, db.InstantColumn(&b.Blocker.ScheduledAt), &b.Blocker.TriggerID, db.KindColumn(&b.Blocker), &node,
			db.InstantColumn(&b.Since), &b.Ended, &b.Callback, db.OptionalColumn(&b.WaitsSince), &b.Skipped)
		if b.Run = b.Blocker.String(); node > 0 {
			b.Node = &node
		}
		return b, err
	}, `SELECT j.id, j.app, j.name, s.scheduled_at, s.trigger_id, s.kind, s.node, s.since, r.job_id IS NULL,
			coalesce(r.state = 'waiting_callback', FALSE), `+waitsSince+`, `+
		skippedAfter+` FROM `+blockedJobs+rest, append([]any{now.UnixMilli(), since}, args...)...)
}

// blocked finds jobs that a slot blocks, the longest first.
func (l *looker) blocked(ctx context.Context) error {
	args := definitions.StatementArgs{nil, nil}
	rest := l.ofApps(`j.app_id`, &args) + ` ORDER BY s.since, j.app, j.name LIMIT ` + strconv.Itoa(shownMost)
	found, err := BlockedJobs(ctx, l.db.Read, l.at, rest, args[2:])
	all := make([]view.Blockage, len(found))
	for i, one := range found {
		all[i] = one.Blockage
	}
	l.found.Blocked = begin(all)
	return err
}
