package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// goesOnIn selects the apps a with runs that continue. Runs of a deleted app end, whatever its switch was.
const goesOnIn = `(a.enabled OR a.deleted_at IS NOT NULL)`

// mayRun selects the runs r, of job j, that a node may adopt. Runs of a deleted job end on any node.
// $1 node, $5 number of apps
const (
	mayRun    = `j.app_id` + inApps + ` AND ` + jobMayRun
	inApps    = ` IN (SELECT a.id FROM apps AS a WHERE ` + goesOnIn + ` AND ($5 = 0 OR a.name IN (SELECT name FROM b)))`
	jobMayRun = `(j.node_labels = '' OR j.deleted_at IS NOT NULL OR j.node_labels IN (SELECT labels FROM b))
		AND EXISTS (SELECT 1 FROM nodes WHERE id = $1 AND state = 'active')`
)

// AppOf is the app of a job, for the row of one of its runs; 0 if the job's row is gone.
func AppOf(job string) string {
	return `coalesce((SELECT o.app_id FROM jobs AS o WHERE o.id = ` + job + `), 0)`
}

// Unsent selects the runs of dead nodes that were certainly not sent: their node knew the current job.
const Unsent = `r.node <> 0 AND j.delivery = 'at_most_once' AND j.revision <= abs(r.revision)`

// adoptedRevision is the revision with which a run is adopted. That of a deleted job is negative: the node ends the run even if
// it missed the notification, or the job came back meanwhile. The run may have moved with its app, and come back, too.
const adoptedRevision = `CASE WHEN j.deleted_at IS NULL THEN j.revision ELSE -j.revision END AS job_revision`

// repeats selects the runs of dead nodes that are adopted in the same attempt: those that were certainly not sent, and
// those with an ended attempt that the node had only to record.
const repeats = Unsent + ` OR r.node <> 0 AND r.callback IS NOT NULL`

// insertLost keeps the attempts of runs c that are lost with their node; there is no attempt where dead is 0.
const insertLost = ` INSERT INTO attempts (scheduled_at, trigger_id, kind, attempt, node, started_at, ended_at, http_status,
	state, class, error)
	SELECT c.of_at, c.of_trigger, c.of_kind, c.over, c.dead, c.since, c.now, 0, 'lost', 'other', c.why
	FROM c WHERE c.dead > 0 ON CONFLICT DO NOTHING`

// adoptOf is a statement that adopts live runs r of the batch that meet conditions, after other steps. It skips runs
// that another node is adopting, those of a disabled app, and all if the node is no longer active.
// $1 node, $2 token, $3 now, from $4 on: db.AdoptColumns
func adoptOf(f db.Flavor, columns, conditions string, before ...string) db.Statement {
	// The run gets the current revision of its job. The state of an accepted attempt stays until its end is recorded:
	// so a later adopter still knows that it must not call the target.
	adopt := ` UPDATE live_runs AS r SET node = $1, token = $2, revision = c.job_revision, claimed_at = c.now, started_at = NULL,
		attempt = c.over + 1, state = 'claimed', next_attempt_at = NULL, waits_for = 0, http_status = 0, class = '', error = ''
	FROM c WHERE` + db.OfChosen(f) + ` RETURNING ` + adoptedColumns
	// The lock of the app lets an export wait for the adoption, and no other change of the app.
	choose := columns + ` FROM b` + f.EachRun(conditions) + ` JOIN jobs AS j ON j.id = r.job_id JOIN apps AS a ON a.id = j.app_id
		WHERE ` + goesOnIn + ` AND EXISTS (SELECT 1 FROM nodes WHERE id = $1 AND state = 'active')` + db.LockOf(f.LockRows(db.LockToKeep), "a")
	return f.Steps(3, f.Rows(3, 4, "", db.AdoptColumns...), choose, db.LockedThere, 1, append(before, adopt)...)
}

// lookFor is a statement that finds runs to adopt.
// $1 node, $2 now, $3 limit, $4 due, $5 number of apps, from $6 on: db.LookColumns
func lookFor(f db.Flavor, choose string) db.Statement {
	return db.Reading(f.Rows(2, 6, "", db.LookColumns...) + choose)
}

// appsOf are common table expressions; a has the apps with runs r that meet a condition, if the node may adopt any of
// them, and the run to start after. An index with the condition that begins with the app finds them, a step for each.
// $4 due, $5 number of apps
func appsOf(condition string) string {
	least := `SELECT min(r.app_id) FROM live_runs AS r WHERE ` + condition
	return `a AS MATERIALIZED (SELECT s.app, coalesce(x.after_due, $4) AS after_due, x.after_at, x.after_trigger, x.after_kind
		FROM (WITH RECURSIVE s (app) AS (
			` + least + `
			UNION ALL SELECT (` + least + ` AND r.app_id > s.app) FROM s WHERE s.app IS NOT NULL
		) SELECT s.app FROM s WHERE s.app IS NOT NULL) AS s LEFT JOIN b AS x ON x.app = s.app
		WHERE s.app` + inApps + `)`
}

// adoptableRow are the columns of an adoptable run, without its due time, which follows them.
const adoptableRow = `r.scheduled_at, r.trigger_id, r.kind, r.job_id, j.revision, r.app_id, `

// inTurns chooses runs from w, which has the first runs of each app, in turns: the first of each, then the second of
// each, and so on. more means that the app has further runs after this one, as far as w contains them.
// $3 limit
const inTurns = `
	SELECT w.scheduled_at, w.trigger_id, w.kind, w.job_id, w.revision, w.due, w.app_id, w.turn < w.of_app OR w.of_app >= $3
	FROM (SELECT w.*, row_number() OVER (PARTITION BY w.app_id ORDER BY w.due, w.scheduled_at, w.trigger_id, w.kind) AS turn,
			count(*) OVER (PARTITION BY w.app_id) AS of_app
		FROM w) AS w
	ORDER BY w.turn, w.due, w.scheduled_at, w.trigger_id, w.kind LIMIT $3`

// isIdle selects the live runs r in the index live_runs_idle.
const isIdle = `r.node = 0 AND r.state NOT IN ('retrying', 'waiting_callback', 'running', 'waiting_shards')`

// idleRuns chooses runs that no node works on, in turns of apps, so that a backlog of one app does not delay others.
// The sum keeps PostgreSQL from reading the primary key in that order. Runs of a disabled app wait until it is enabled,
// and runs that require labels wait for a node with them. Dead nodes have left at most as many as nodes hold.
// $1 node, $2 now, $3 limit, $4 due, $5 number of apps
func idleRuns(f db.Flavor) string {
	const order = `r.scheduled_at + 0, r.trigger_id, r.kind`
	return `, ` + appsOf(isIdle) + `, w AS (
	` + f.EachFirst(adoptableRow+`r.scheduled_at AS due`, ` CROSS JOIN jobs AS j`,
		`j.id = r.job_id AND r.app_id = a.app AND `+isIdle+` AND r.scheduled_at + 0 >= a.after_due
		AND (a.after_at IS NULL OR (`+order+`) > (a.after_at, a.after_trigger, a.after_kind)) AND `+jobMayRun, order) + `
	UNION ALL SELECT ` + adoptableRow + `r.scheduled_at
	FROM nodes AS o` + f.RunsOf(`o.id`, `r.state NOT IN ('running', 'waiting_shards')`, ` OFFSET 0`) + ` CROSS JOIN jobs AS j
		LEFT JOIN b AS x ON x.app = r.app_id
	WHERE j.id = r.job_id AND ` + mayHaveLeft + ` AND r.scheduled_at + 0 >= coalesce(x.after_due, $4)
		AND (x.after_at IS NULL OR (` + order + `) > (x.after_at, x.after_trigger, x.after_kind)) AND ` + mayRun + `)` + inTurns
}

// takeIdle chooses the runs of the batch that no node works on now. A run claimed by a dead node may have been sent,
// unless its job wants a request at most once: then the node would have begun it first. The number of an attempt that
// was not made is used again.
const takeIdle = ` SELECT r.scheduled_at AS of_at, r.trigger_id AS of_trigger, r.kind AS of_kind,
		CASE WHEN ` + repeats + ` THEN r.attempt - 1 ELSE r.attempt END AS over,
		CASE WHEN ` + repeats + ` THEN 0 ELSE r.node END AS dead, ` + claimedAt + ` AS since,
		(SELECT ` + whyGone + ` FROM nodes AS o WHERE o.id = r.node) AS why, ` + adoptedRevision + `, b.now`

// whyGone says what became of a dead node o. One that stopped had no time left for the attempt.
const whyGone = `CASE WHEN o.deregistered THEN 'the node stopped' ELSE 'the node died' END`

// The form in which whichIdle compares the state keeps PostgreSQL from the index of runs by node.
const whichIdle = `(r.state IN ('running', 'retrying', 'waiting_callback', 'waiting_shards')) = b.no
		AND (r.node = 0 OR r.node IN (SELECT id FROM nodes WHERE state = 'dead'))`

// Adoptable finds runs that no node works on, due retries, or runs that wait for a host.
func (s *Store) Adoptable(ctx context.Context, query dispatcher.AdoptQuery) ([]dispatcher.Adoptable, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	names := append([]string{}, query.Apps...)
	served, err := s.servedLabels(ctx, query.Labels)
	idle, dead := !query.Retries && query.WaitsFor == 0, []int64(nil)
	if err == nil && idle {
		dead, err = s.unfoldAbandoned(ctx, query.Limit, query.Now)
	}
	if err != nil {
		return nil, fmt.Errorf("look for runs to adopt: %w", err)
	}
	found, err := s.adoptable(ctx, query, s.LookArgs(query, names, served))
	if err == nil && len(found) == 0 && len(dead) > 0 {
		_, err = s.exec(ctx, s.Hot.NoteEmpty, append([]any{db.OrZero(query.Now)}, s.db.Batch(dead)...))
	}
	if err != nil {
		return nil, fmt.Errorf("look for runs to adopt: %w", err)
	}
	return found, nil
}

// adoptable is Adoptable with the parameters of lookFor. It searches retries by time while one query finds all due
// ones, because then no turns are needed.
func (s *Store) adoptable(ctx context.Context, query dispatcher.AdoptQuery, args []any) (found []dispatcher.Adoptable, err error) {
	look := func(by db.Statement) error {
		found = nil
		_, err := s.db.Execute(ctx, by, args, func(row db.Scanner) error {
			var one dispatcher.Adoptable
			err := row.Scan(db.KeyRefs(&one.Key, &one.JobID, &one.Revision, db.InstantColumn(&one.DueAt), &one.AppID, &one.More)...)
			found = append(found, one)
			return err
		})
		return err
	}
	switch {
	case query.WaitsFor != 0:
		err = look(s.Hot.Waiting)
	case !query.Retries:
		err = look(s.Hot.Idle)
	case len(query.After) > 0:
		err = look(s.Hot.RetriesByTurns)
	default:
		err = look(s.Hot.DueRetries)
		if err == nil && len(found) == query.Limit {
			err = look(s.Hot.RetriesByTurns)
		} else {
			db.SortBy(found, func(run dispatcher.Adoptable) run.Key { return run.Key })
			slices.SortStableFunc(found, func(a, b dispatcher.Adoptable) int { return a.DueAt.Compare(b.DueAt) })
		}
	}
	return found, err
}

// LookArgs are the parameters of lookFor.
func (s *Store) LookArgs(query dispatcher.AdoptQuery, names, served []string) []any {
	fourth := db.OrZero(query.From)
	if query.WaitsFor != 0 {
		fourth = query.WaitsFor
	}
	var app, due, at, trigger []int64
	var kind []int32
	for _, id := range slices.Sorted(maps.Keys(query.After)) {
		last := query.After[id]
		app, due, at = append(app, id), append(due, last.DueAt.UnixMilli()), append(at, last.ScheduledAt.UnixMilli())
		trigger, kind = append(trigger, last.TriggerID), append(kind, int32(last.Code()))
	}
	rows := max(len(names), len(served), len(app))
	return append([]any{int64(query.Node), db.OrZero(query.Now), int64(query.Limit), fourth, int64(len(query.Apps))},
		s.db.Batch(filled(names, rows), filled(served, rows), filled(app, rows), filled(due, rows), filled(at, rows),
			filled(trigger, rows), filled(kind, rows))...)
}

// filled pads a list with zero values.
func filled[T any](list []T, rows int) []T { return append(list, make([]T, rows-len(list))...) }

// Adopt gives a node the runs that it may still adopt. Runs that cannot be adopted are set aside.
func (s *Store) Adopt(ctx context.Context, query dispatcher.AdoptQuery, runs []dispatcher.Adoptable) ([]run.HeldRun, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	work := dispatcher.WorkAdopt
	if query.Retries || query.WaitsFor != 0 {
		work = dispatcher.WorkRetry
	}
	var held []run.HeldRun
	item := func(run dispatcher.Adoptable) string { return run.String() }
	runs = WithoutAsides(s.Asides, work, runs, item, cmp.Or(query.Now, db.WallClock())) // could not be set aside
	err := InParts(ctx, s.OfStored, runs, func(part []dispatcher.Adoptable) error {
		adopt := s.Hot.Adopt
		if query.Retries || query.WaitsFor != 0 {
			adopt = s.Hot.Retry
		}
		var at, trigger, wait []int64
		var kind []int32
		for _, run := range db.SortedBy(part, func(r dispatcher.Adoptable) run.Key { return r.Key }) {
			at, trigger = append(at, run.ScheduledAt.UnixMilli()), append(trigger, run.TriggerID)
			kind, wait = append(kind, int32(run.Code())), append(wait, query.WaitsFor)
		}
		args := append([]any{int64(query.Node), int64(query.Token), db.OrZero(query.Now)}, s.db.Batch(at, trigger, kind, wait)...)
		adopted, err := s.readHeld(ctx, db.OtherTimeout, newAdoptedRow(), adopt, args)
		held = append(held, adopted...)
		return err
	}, func(run dispatcher.Adoptable, why error) error {
		return s.setRunAside(ctx, failedRun{work, run.Key, 0, why}, query.Now)
	})
	if err != nil {
		return nil, fmt.Errorf("adopt %d runs: %w", len(runs), err)
	}
	return db.SortedBy(held, db.HeldKey), nil
}

// A dead node without rows is not checked each time: next to a long snapshot that would cost as much as all its old
// rows. But a transaction that it began while it lived may commit later. So it is checked again when it has been dead
// twice as long as at the last check, and after emptyFor at the latest. A check in the future, caused by a wrong clock,
// does not count.
const (
	mayHaveLeft = `o.state = 'dead' AND (o.empty_at IS NULL OR o.empty_at > (SELECT now FROM n)
			OR (SELECT now FROM n) - o.empty_at >= o.empty_at - o.heartbeat_at OR (SELECT now FROM n) - o.empty_at >= ` + emptyFor + `)`
	emptyFor = `300000`
)

// deadNodes are the dead nodes that may still have rows. $1 now, $2 unused
const deadNodes = ` SELECT o.id FROM nodes AS o WHERE ` + mayHaveLeft + ` ORDER BY o.id`

// hasNothing is the condition that a node o has no claims or live runs at all. The limits keep PostgreSQL from joining
// whole tables. It follows a CASE that reads b: otherwise PostgreSQL would evaluate it for each node.
const hasNothing = `NOT EXISTS (SELECT 1 FROM claims AS k WHERE k.node = o.id LIMIT 1 OFFSET 0)
			AND NOT EXISTS (SELECT 1 FROM live_runs AS r WHERE r.node = o.id AND ` + db.NotParked + ` LIMIT 1 OFFSET 0)`

// noteEmpty notes which of some dead nodes have no rows left.
// $1 now, from $2 on: db.IDColumns
func noteEmpty(f db.Flavor) string {
	return ` UPDATE nodes SET empty_at = (SELECT now FROM n) WHERE id IN (SELECT o.id FROM b JOIN nodes AS o ON o.id = b.id
		WHERE CASE WHEN o.state = 'dead' AND b.yes THEN ` + hasNothing + ` ELSE b.no END
		ORDER BY o.id` + f.LockRows(db.LockToDelete+db.SkipLockedRows) + `)`
}

// begunByDeadNodes chooses the begun runs of dead nodes. $2 limit
func begunByDeadNodes(f db.Flavor) string {
	return ` SELECT` + ChosenEnd(End{
		status: `0`, State: `'lost'`, Class: `'other'`,
		Message: whyGone + ` || ' when the request may have been sent, and the job wants it at most once'`,
	}) + `, r.node AS dead, COALESCE(r.started_at, ` + claimedAt + `) AS since, ` + whyGone + ` AS why, n.now
	FROM n CROSS JOIN nodes AS o` + f.RunsOf(`o.id`, `r.state = 'running'`, ` ORDER BY r.scheduled_at + 0, r.trigger_id LIMIT $2`) + `
	WHERE ` + mayHaveLeft + ` ORDER BY r.scheduled_at + 0, r.trigger_id LIMIT $2`
}
