package store

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// mayRun tells the runs r, of job j, that a node may adopt.
const mayRun = `j.app_id IN (SELECT id FROM apps WHERE enabled AND ($7 = 0 OR name IN (SELECT name FROM b)))
		AND (j.node_labels = '' OR j.node_labels IN (SELECT labels FROM b))
		AND EXISTS (SELECT 1 FROM nodes WHERE id = $3 AND state = 'active')`

// unsent selects the runs of dead nodes that were surely not sent: their node knew the job as it is.
const unsent = `r.node <> 0 AND j.delivery = 'at_most_once' AND j.revision = r.revision`

const insertLost = ` INSERT INTO attempts (scheduled_at, trigger_id, kind, attempt, node, started_at, ended_at, http_status,
	state, class, error)
	SELECT c.of_at, c.of_trigger, c.of_kind, c.over, c.dead, c.since, c.now, 0, 'lost', 'other', c.why
	FROM c WHERE c.dead > 0 ON CONFLICT DO NOTHING`

// The node that adopts a run knows its job as it is now.
// $3 node, $4 token
const adoptRuns = ` UPDATE runs AS r SET node = $3, token = $4, revision = c.job_revision, claimed_at = c.now,
	started_at = NULL, attempt = c.over + 1,
		state = 'claimed', next_attempt_at = NULL, http_status = 0, class = '', error = ''
	FROM c WHERE r.scheduled_at = c.of_at AND r.trigger_id = c.of_trigger AND r.kind = c.of_kind` + within + `
	RETURNING ` + heldColumns

// chosenSpan tells from when to when the chosen runs are. There are rarely any, and to look
// for them in all partitions is cheaper than to be ready to update in all of them.
const chosenSpan = ` SELECT min(c.of_at), max(c.of_at) FROM c`

const adoptableSpan = chosenSpan + ` WHERE CAST($4 AS bigint) <> 0` // every parameter needs a type

// adoptable chooses runs that no node works on. Its order lets none starve. Runs of a disabled app
// wait until the app is enabled, and runs of a job that requires labels wait for a node with them. days is
// within where it helps: SQLite has no partitions, and would read all
// runs between the bounds rather than look into runs_live.
// A run that a dead node had claimed may have been sent, unless its job wants a request at most once:
// then the node would have begun it first. The number of an attempt that was not made is used again.
// $3 node, $6 limit, $7 number of apps. SQLite's RETURNING knows no "r.", hence the names.
func adoptable(days string) string {
	return ` SELECT r.scheduled_at AS of_at, r.trigger_id AS of_trigger, r.kind AS of_kind,
			CASE WHEN ` + unsent + ` THEN r.attempt - 1 ELSE r.attempt END AS over,
			CASE WHEN ` + unsent + ` THEN 0 ELSE r.node END AS dead, r.claimed_at AS since,
			'the node died' AS why, j.revision AS job_revision, n.now
		FROM n CROSS JOIN (SELECT 0 AS id UNION ALL SELECT id FROM nodes WHERE state = 'dead') AS gone
			JOIN runs AS r ON r.node = gone.id AND r.live JOIN jobs AS j ON j.id = r.job_id
		WHERE r.state NOT IN ('running', 'retrying') AND ` + mayRun + days + `
		ORDER BY r.scheduled_at, r.trigger_id LIMIT $6`
}

// Adopt gives a node runs that nobody works on, or retries that are due.
func (s *store) Adopt(ctx context.Context, query dispatcher.AdoptQuery) ([]dispatcher.HeldRun, error) {
	names, served, err := s.adoptLists(ctx, query.Apps, query.Labels)
	if err != nil {
		return nil, fmt.Errorf("adopt runs: %w", err)
	}
	args := append([]any{nil, nil, int64(query.Node), int64(query.Token), orZero(query.Now), int64(query.Limit), int64(len(query.Apps))},
		s.batch(names, served)...)
	find, adopt := s.hot.adoptable, s.hot.adopt
	if query.Retries {
		find, adopt = s.hot.dueRetries, s.hot.adoptRetries
	}
	found, err := s.setDays(ctx, find, args)
	if err != nil {
		return nil, fmt.Errorf("look for runs to adopt: %w", err)
	}
	if !found {
		return nil, nil
	}
	held, err := s.heldRuns(ctx, otherTimeout, adopt, args)
	if err != nil {
		return nil, fmt.Errorf("adopt runs: %w", err)
	}
	return held, nil
}

// setDays sets the first two of args to the days of the runs that a statement, run with them,
// finds. What comes after it looked is for the next round.
func (s *store) setDays(ctx context.Context, find statement, args []any) (found bool, err error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	args[0], args[1] = int64(0), int64(math.MaxInt64)
	var first, last *int64
	_, err = s.run(ctx, find, args, func(row scanner) error { return row.Scan(&first, &last) })
	if err != nil || first == nil {
		return false, err
	}
	args[0], args[1] = day(*first), day(*last)+dayMillis
	return true, nil
}

// adoptLists returns adoptColumns for a node of these apps and labels.
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

const failLostRuns = ` UPDATE runs AS r SET live = FALSE, state = 'lost', token = 0, ended_at = c.now, class = 'other',
		error = 'the node died when the request may have been sent, and the job wants it at most once'
	FROM c WHERE r.scheduled_at = c.of_at AND r.trigger_id = c.of_trigger AND r.kind = c.of_kind AND r.live` + within + `
	RETURNING ` + heldColumns

// begunByDeadNodes chooses the begun runs of dead nodes. $4 limit
func begunByDeadNodes(days string) string {
	return ` SELECT r.scheduled_at AS of_at, r.trigger_id AS of_trigger, r.kind AS of_kind, r.attempt AS over,
			r.node AS dead, COALESCE(r.started_at, r.claimed_at) AS since, 'the node died' AS why, n.now
		FROM n CROSS JOIN nodes AS gone JOIN runs AS r ON r.node = gone.id AND r.live
		WHERE gone.state = 'dead' AND r.state = 'running'` + days + ` ORDER BY r.scheduled_at, r.trigger_id LIMIT $4`
}

// endBatch bounds what one statement ends; the next round ends the rest.
const endBatch = 1000

// FailLostRuns ends the runs that dead nodes had begun, and returns how many.
func (s *store) FailLostRuns(ctx context.Context, now time.Time) (int, error) {
	return s.endRuns(ctx, s.hot.lostRuns, s.hot.failLost, now)
}

// endRuns ends runs that nobody works on, in the days in which find finds some, and returns how
// many.
func (s *store) endRuns(ctx context.Context, find, end statement, now time.Time) (int, error) {
	args := append([]any{nil, nil, orZero(now), int64(endBatch)}, s.batch([]int64{0})...)
	if found, err := s.setDays(ctx, find, args); err != nil || !found {
		return 0, err
	}
	ended, err := s.heldRuns(ctx, otherTimeout, end, args)
	if err != nil || len(ended) == 0 {
		return 0, err
	}
	return len(ended), s.announce(ctx, dispatcher.Notification{Adopt: true}) // fixed delays go on from here
}
