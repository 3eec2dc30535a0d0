package store

import (
	"cmp"
	"context"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher"
)

// goesOnIn tells the apps whose runs go on. Those of a deleted app end, whatever its switch was.
const goesOnIn = `(enabled OR deleted_at IS NOT NULL)`

// mayRun tells the runs r, of job j, that a node may adopt. Those of a deleted job end on any node.
// $1 node, $5 number of apps
const mayRun = `j.app_id IN (SELECT id FROM apps WHERE ` + goesOnIn + ` AND ($5 = 0 OR name IN (SELECT name FROM b)))
		AND (j.node_labels = '' OR j.deleted_at IS NOT NULL OR j.node_labels IN (SELECT labels FROM b))
		AND EXISTS (SELECT 1 FROM nodes WHERE id = $1 AND state = 'active')`

// unsent selects the runs of dead nodes that were surely not sent: their node knew the job as it is.
const unsent = `r.node <> 0 AND j.delivery = 'at_most_once' AND j.revision = r.revision`

// repeats selects the runs of dead nodes that are adopted in the same attempt: those that were surely not sent, and those
// of which the node was only to record how the attempt had ended.
const repeats = unsent + ` OR r.node <> 0 AND r.callback IS NOT NULL`

// insertLost keeps the attempts of runs c that are lost with their node; where dead is 0, there is none.
const insertLost = ` INSERT INTO attempts (scheduled_at, trigger_id, kind, attempt, node, started_at, ended_at, http_status,
	state, class, error)
	SELECT c.of_at, c.of_trigger, c.of_kind, c.over, c.dead, c.since, c.now, 0, 'lost', 'other', c.why
	FROM c WHERE c.dead > 0 ON CONFLICT DO NOTHING`

// adoptRuns gives the node what was chosen. It knows the job as it is now. What is known of an accepted attempt stays until
// its end is recorded: a node that adopts the run from this one then still knows that there is nothing to call.
// $1 node, $2 token
func adoptRuns(f flavor) string {
	return ` UPDATE live_runs AS r SET node = $1, token = $2, revision = c.job_revision, claimed_at = c.now, started_at = NULL,
		attempt = c.over + 1, state = 'claimed', next_attempt_at = NULL, waits_for = 0, http_status = 0, class = '', error = ''
	FROM c WHERE` + ofChosen(f) + ` RETURNING ` + adoptedColumns
}

// adoptOf is a statement that adopts those live runs r of the batch that meet conditions, after other steps. What another
// node is adopting is passed over.
// $1 node, $2 token, $3 now, from $4 on: adoptColumns
func adoptOf(f flavor, columns, conditions string, before ...string) statement {
	choose := columns + ` FROM b` + f.eachRun(conditions) + ` JOIN jobs AS j ON j.id = r.job_id WHERE` + stillMay
	return f.steps(3, f.rows(3, 4, "", adoptColumns...), choose, lockedThere, 1, append(before, adoptRuns(f))...)
}

// stillMay tells that the app of a job j is enabled and the node active, as they were when it looked.
// $1 node
const stillMay = ` j.app_id IN (SELECT id FROM apps WHERE ` + goesOnIn + `)
	AND EXISTS (SELECT 1 FROM nodes WHERE id = $1 AND state = 'active')`

// lookFor is a statement that looks for runs to adopt.
// $1 node, $2 now, $3 limit, $4 due, $5 number of apps, $6 scheduled instant, $7 trigger, $8 kind, from $9 on:
// lookColumns
func lookFor(f flavor, choose string) statement {
	return read(f.rows(2, 9, "", lookColumns...) + choose)
}

// idleRuns chooses runs that no node works on. Its order lets none starve; the sums in it keep PostgreSQL from
// reading the primary key in that order. Runs of a disabled app
// wait until the app is enabled, and runs of a job that requires labels wait for a node with them.
func idleRuns(f flavor) string {
	return ` SELECT r.scheduled_at, r.trigger_id, r.kind, r.job_id, j.revision, r.scheduled_at
	FROM n CROSS JOIN (SELECT 0 AS id UNION ALL SELECT o.id FROM nodes AS o WHERE ` + mayHaveLeft + `) AS gone
		` + f.runsOf(`gone.id`, `r.state NOT IN ('running', 'waiting_shards')`, ` OFFSET 0`) + ` CROSS JOIN jobs AS j
	WHERE j.id = r.job_id AND r.scheduled_at + 0 >= $4 AND (r.scheduled_at + 0, r.trigger_id, r.kind) > ($6, $7, $8) AND ` + mayRun + `
	ORDER BY r.scheduled_at + 0, r.trigger_id, r.kind LIMIT $3`
}

// takeIdle chooses those of the batch that no node works on now.
// A run that a dead node had claimed may have been sent, unless its job wants a request at most once:
// then the node would have begun it first. The number of an attempt that was not made is used again.
const takeIdle = ` SELECT r.scheduled_at AS of_at, r.trigger_id AS of_trigger, r.kind AS of_kind,
		CASE WHEN ` + repeats + ` THEN r.attempt - 1 ELSE r.attempt END AS over,
		CASE WHEN ` + repeats + ` THEN 0 ELSE r.node END AS dead, r.claimed_at AS since,
		'the node died' AS why, j.revision AS job_revision, b.now`

// How whichIdle compares the state keeps PostgreSQL from the index of all that nodes have.
const whichIdle = `(r.state IN ('running', 'retrying', 'waiting_callback', 'waiting_shards')) = b.no
		AND (r.node = 0 OR r.node IN (SELECT id FROM nodes WHERE state = 'dead'))`

// Adoptable looks for runs that nobody works on, retries that are due, or runs that wait for a host.
func (s *store) Adoptable(ctx context.Context, query dispatcher.AdoptQuery) ([]dispatcher.Adoptable, error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	names, served, err := s.adoptLists(ctx, query.Apps, query.Labels)
	idle, dead := !query.Retries && query.WaitsFor == 0, []int64(nil)
	if err == nil && idle {
		dead, err = s.unfoldAbandoned(ctx, query.Limit, query.Now)
	}
	if err != nil {
		return nil, fmt.Errorf("look for runs to adopt: %w", err)
	}
	look := s.hot.idle
	switch {
	case query.WaitsFor != 0:
		look = s.hot.waiting
	case query.Retries:
		look = s.hot.dueRetries
	}
	var found []dispatcher.Adoptable
	_, err = s.run(ctx, look, s.lookArgs(query, names, served), func(row scanner) error {
		var one dispatcher.Adoptable
		err := row.Scan(instantColumn(&one.ScheduledAt), &one.TriggerID, kindColumn(&one.RunKey), &one.JobID, &one.Revision,
			instantColumn(&one.DueAt))
		found = append(found, one)
		return err
	})
	if err == nil && len(found) == 0 && len(dead) > 0 {
		_, err = s.exec(ctx, s.hot.noteEmpty, append([]any{orZero(query.Now)}, s.batch(dead)...))
	}
	if err != nil {
		return nil, fmt.Errorf("look for runs to adopt: %w", err)
	}
	return found, nil
}

// lookArgs are the parameters of lookFor.
func (s *store) lookArgs(query dispatcher.AdoptQuery, names, served []string) []any {
	fourth := orZero(query.After.DueAt)
	if query.WaitsFor != 0 {
		fourth = query.WaitsFor
	}
	return append([]any{int64(query.Node), orZero(query.Now), int64(query.Limit), fourth, int64(len(query.Apps)),
		orZero(query.After.ScheduledAt), query.After.TriggerID, int64(query.After.Code())}, s.batch(names, served)...)
}

// Adopt gives a node those of runs that it may still adopt. Runs that cannot be adopted are set aside.
func (s *store) Adopt(ctx context.Context, query dispatcher.AdoptQuery, runs []dispatcher.Adoptable) ([]dispatcher.HeldRun, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	work := dispatcher.WorkAdopt
	if query.Retries || query.WaitsFor != 0 {
		work = dispatcher.WorkRetry
	}
	var held []dispatcher.HeldRun
	item := func(run dispatcher.Adoptable) string { return run.String() }
	runs = withoutAsides(s, work, runs, item, cmp.Or(query.Now, wallClock())) // those that could not even be set aside
	err := inParts(ctx, s, runs, func(part []dispatcher.Adoptable) error {
		adopted, err := s.adoptPart(ctx, query, part)
		held = append(held, adopted...)
		return err
	}, func(run dispatcher.Adoptable, why error) error {
		return s.setRunAside(ctx, failedRun{work, run.RunKey, 0, why}, query.Now)
	})
	if err != nil {
		return nil, fmt.Errorf("adopt %d runs: %w", len(runs), err)
	}
	return sortedBy(held, heldKey), nil
}

// adoptPart is Adopt of runs in one statement.
func (s *store) adoptPart(ctx context.Context, query dispatcher.AdoptQuery, runs []dispatcher.Adoptable) ([]dispatcher.HeldRun, error) {
	adopt := s.hot.adopt
	if query.Retries || query.WaitsFor != 0 {
		adopt = s.hot.retry
	}
	var at, trigger, wait []int64
	var kind []int32
	for _, run := range sortedBy(runs, func(r dispatcher.Adoptable) dispatcher.RunKey { return r.RunKey }) {
		at, trigger = append(at, run.ScheduledAt.UnixMilli()), append(trigger, run.TriggerID)
		kind, wait = append(kind, int32(run.Code())), append(wait, query.WaitsFor)
	}
	args := append([]any{int64(query.Node), int64(query.Token), orZero(query.Now)}, s.batch(at, trigger, kind, wait)...)
	return s.readHeld(ctx, otherTimeout, newAdoptedRow(), adopt, args)
}

// adoptLists returns lookColumns for a node of these apps and labels.
func (s *store) adoptLists(ctx context.Context, apps []string, labels dispatcher.Labels) (names, served []string, err error) {
	if served, err = s.servedLabels(ctx, labels); err != nil {
		return nil, nil, err
	}
	names = append([]string{}, apps...)
	for len(names) < len(served) {
		names = append(names, "")
	}
	for len(served) < len(names) {
		served = append(served, "")
	}
	return names, served, nil
}

// A dead node of which nothing is left is not looked at each time: next to a long snapshot that would cost as much as
// all it ever had. But a transaction that it began when it lived may commit whenever the database gets to it. So it is
// looked at again when it has been dead for twice as long as the last time, and after emptyFor at the latest. In
// case the clock was wrong, a look in the future does not count.
const (
	mayHaveLeft = `o.state = 'dead' AND (o.empty_at IS NULL OR o.empty_at > (SELECT now FROM n)
			OR (SELECT now FROM n) - o.empty_at >= o.empty_at - o.heartbeat_at OR (SELECT now FROM n) - o.empty_at >= ` + emptyFor + `)`
	emptyFor = `300000`
)

// deadNodes are those of which something may be left. $1 now, $2 says nothing
const deadNodes = ` SELECT o.id FROM nodes AS o WHERE ` + mayHaveLeft + ` ORDER BY o.id`

// hasNothing tells that a node o has neither claims nor live runs, also such as this node may not adopt. The limits
// keep PostgreSQL from joining whole tables. It comes behind a CASE that reads b: PostgreSQL would else ask it of each node.
const hasNothing = `NOT EXISTS (SELECT 1 FROM claims AS k WHERE k.node = o.id LIMIT 1 OFFSET 0)
			AND NOT EXISTS (SELECT 1 FROM live_runs AS r WHERE r.node = o.id AND ` + notParked + ` LIMIT 1 OFFSET 0)`

// noteEmpty notes of which of some dead nodes nothing is left.
// $1 now, from $2 on: idColumns
func noteEmpty(f flavor) string {
	return ` UPDATE nodes SET empty_at = (SELECT now FROM n) WHERE id IN (SELECT o.id FROM b JOIN nodes AS o ON o.id = b.id
		WHERE CASE WHEN o.state = 'dead' AND b.yes THEN ` + hasNothing + ` ELSE b.no END
		ORDER BY o.id` + f.lockRows(lockToDelete+skipLocked) + `)`
}

// begunByDeadNodes chooses the begun runs of dead nodes. $2 limit
func begunByDeadNodes(f flavor) string {
	return ` SELECT` + chosenEnd(end{
		status: `0`, state: `'lost'`, class: `'other'`,
		message: `'the node died when the request may have been sent, and the job wants it at most once'`,
	}) + `, r.node AS dead, COALESCE(r.started_at, r.claimed_at) AS since, 'the node died' AS why, n.now
	FROM n CROSS JOIN nodes AS o` + f.runsOf(`o.id`, `r.state = 'running'`, ` ORDER BY r.scheduled_at + 0, r.trigger_id LIMIT $2`) + `
	WHERE ` + mayHaveLeft + ` ORDER BY r.scheduled_at + 0, r.trigger_id LIMIT $2`
}
