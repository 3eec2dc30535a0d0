package store

import (
	"context"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher"
)

// mayRun tells the runs r, of job j, that a node may adopt.
// $1 node, $5 number of apps
const mayRun = `j.app_id IN (SELECT id FROM apps WHERE enabled AND ($5 = 0 OR name IN (SELECT name FROM b)))
		AND (j.node_labels = '' OR j.node_labels IN (SELECT labels FROM b))
		AND EXISTS (SELECT 1 FROM nodes WHERE id = $1 AND state = 'active')`

// unsent selects the runs of dead nodes that were surely not sent: their node knew the job as it is.
const unsent = `r.node <> 0 AND j.delivery = 'at_most_once' AND j.revision = r.revision`

// insertLost keeps the attempts of runs c that are lost with their node; where dead is 0, there is none.
const insertLost = ` INSERT INTO attempts (scheduled_at, trigger_id, kind, attempt, node, started_at, ended_at, http_status,
	state, class, error)
	SELECT c.of_at, c.of_trigger, c.of_kind, c.over, c.dead, c.since, c.now, 0, 'lost', 'other', c.why
	FROM c WHERE c.dead > 0 ON CONFLICT DO NOTHING`

// adoptRuns gives the node what was chosen. It knows the job as it is now.
// $1 node, $2 token
func adoptRuns(f flavor) string {
	return ` UPDATE live_runs AS r SET node = $1, token = $2, revision = c.job_revision, claimed_at = c.now, started_at = NULL,
		attempt = c.over + 1, state = 'claimed', next_attempt_at = NULL, waits_for = 0, http_status = 0, class = '', error = ''
	FROM c WHERE` + ofChosen(f) + ` RETURNING ` + heldColumns
}

// adoptOf is a statement that adopts what choose chooses, after other steps. What another node is adopting is
// passed over.
// $1 node, $2 token, $3 now, $4 limit, $5 number of apps, from $6 on: adoptColumns
func adoptOf(f flavor, choose string, before ...string) statement {
	return f.steps(3, f.rows(3, 6, "", adoptColumns...), choose, skipLocked, 1, append(before, adoptRuns(f))...)
}

// adoptable chooses runs that no node works on. Its order lets none starve; the sum in it keeps PostgreSQL from
// reading the primary key in that order. Runs of a disabled app
// wait until the app is enabled, and runs of a job that requires labels wait for a node with them.
// A run that a dead node had claimed may have been sent, unless its job wants a request at most once:
// then the node would have begun it first. The number of an attempt that was not made is used again.
// $1 node, $4 limit, $5 number of apps
const adoptable = ` SELECT r.scheduled_at AS of_at, r.trigger_id AS of_trigger, r.kind AS of_kind,
		CASE WHEN ` + unsent + ` THEN r.attempt - 1 ELSE r.attempt END AS over,
		CASE WHEN ` + unsent + ` THEN 0 ELSE r.node END AS dead, r.claimed_at AS since,
		'the node died' AS why, j.revision AS job_revision, n.now
	FROM n CROSS JOIN (SELECT 0 AS id UNION ALL SELECT id FROM nodes WHERE state = 'dead') AS gone
		CROSS JOIN live_runs AS r CROSS JOIN jobs AS j
	WHERE r.node = gone.id AND r.state <> 'retrying' AND r.state <> 'running' AND j.id = r.job_id AND ` + mayRun + `
	ORDER BY r.scheduled_at + 0, r.trigger_id LIMIT $4`

// Adopt gives a node runs that nobody works on, or retries that are due.
func (s *store) Adopt(ctx context.Context, query dispatcher.AdoptQuery) ([]dispatcher.HeldRun, error) {
	names, served, err := s.adoptLists(ctx, query.Apps, query.Labels)
	if err == nil && !query.Retries {
		err = s.unfoldAbandoned(ctx, query.Limit)
	}
	if err != nil {
		return nil, fmt.Errorf("adopt runs: %w", err)
	}
	args := append([]any{int64(query.Node), int64(query.Token), orZero(query.Now), int64(query.Limit), int64(len(query.Apps))},
		s.batch(names, served)...)
	adopt := s.hot.adopt
	if query.Retries {
		adopt = s.hot.dueRetries
	}
	held, err := s.heldRuns(ctx, otherTimeout, adopt, args)
	if err != nil {
		return nil, fmt.Errorf("adopt runs: %w", err)
	}
	return held, nil
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

// begunByDeadNodes chooses the begun runs of dead nodes. $2 limit
var begunByDeadNodes = ` SELECT` + chosenEnd(end{
	status: `0`, state: `'lost'`, class: `'other'`,
	message: `'the node died when the request may have been sent, and the job wants it at most once'`,
}) + `, r.node AS dead, COALESCE(r.started_at, r.claimed_at) AS since, 'the node died' AS why, n.now
	FROM n CROSS JOIN nodes AS gone CROSS JOIN live_runs AS r
	WHERE gone.state = 'dead' AND r.node = gone.id AND r.state <> 'retrying' AND r.state = 'running' ORDER BY r.scheduled_at + 0, r.trigger_id LIMIT $2`
