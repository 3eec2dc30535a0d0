package store

// Shared parts of the hot statements. Names they rely on: b is the batch, n the present (see
// flavor.rows), c what was chosen, t a trigger, r a run.

// advanceMatches is the compare-and-swap of triggers, and all that a claim must check
// again: not paused, not early, the app enabled, the node active.
// $1 node, $4 lead in milliseconds
const advanceMatches = ` t.id = b.id AND t.state = b.waiting AND t.revision = b.revision
	AND t.calendar_revision = b.calendars AND t.prev_fire_time IS NOT DISTINCT FROM b.prev AND t.next_fire_time = b.next
	AND (t.paused OR t.job_paused) = b.no AND t.due_at <= b.now + $4
	AND (t.app_id IN (SELECT id FROM apps WHERE enabled)) = b.yes
	AND EXISTS (SELECT 1 FROM nodes WHERE id = $1 AND state = 'active')`

const advance = `UPDATE triggers AS t SET prev_fire_time = b.next, next_fire_time = b.upto, due_at = b.upto_due,
	state = CASE WHEN b.upto IS NULL AND NOT t.delayed THEN 'complete' ELSE t.state END FROM b WHERE` + advanceMatches

const claimExtra = `next AS run_at, 1 AS kind, 'waiting' AS waiting`

const claimedRow = `t.id, t.job_id, t.revision, b.run_at, b.kind, b.now`

// A fire that is caught up by itself has a run of kind schedule, and else there is one of kind
// catch_up.
const settleExtra = `CASE WHEN decision = 'fire_all' THEN 1 ELSE 3 END AS kind, 'waiting' AS waiting`

const settledRow = claimedRow + `, b.next, b.to_at, b.missed, b.decision, b.reason`

// $1 node, $2 token
const newRuns = ` INSERT INTO runs (scheduled_at, trigger_id, kind, job_id, revision, node, token, claimed_at, attempt, live, state)
	SELECT c.run_at, c.id, c.kind, c.job_id, c.revision, $1, $2, c.now, 1, TRUE, 'claimed' FROM c WHERE c.run_at IS NOT NULL`

const insertNewRuns = newRuns + ` RETURNING ` + heldColumns

const insertRuns = newRuns + ` ON CONFLICT DO NOTHING RETURNING ` + heldColumns

// $1 node
const insertDecisions = ` INSERT INTO misfires (from_at, to_at, trigger_id, job_id, count, decision, reason, catch_up, node, decided_at)
	SELECT c.next, c.to_at, c.id, c.job_id, c.missed, c.decision, c.reason, c.run_at, $1, c.now FROM c
	WHERE c.decision <> 'fire_all' ON CONFLICT DO NOTHING`

// heldColumns are a HeldRun.
const heldColumns = `scheduled_at, trigger_id, kind, job_id, revision, token, attempt, failures, retry_until`

// mayRun tells the runs r, of job j, that a node may adopt.
const mayRun = `j.app_id IN (SELECT id FROM apps WHERE enabled AND ($7 = 0 OR name IN (SELECT name FROM b)))
		AND (j.node_labels = '' OR j.node_labels IN (SELECT labels FROM b))
		AND EXISTS (SELECT 1 FROM nodes WHERE id = $3 AND state = 'active')`

// unsent tells of the runs of dead nodes that were surely not sent: their node knew the job as it is.
const unsent = `r.node <> 0 AND j.delivery = 'at_most_once' AND j.revision = r.revision`

const insertLost = ` INSERT INTO attempts (scheduled_at, trigger_id, kind, attempt, node, started_at, ended_at, http_status, state, class, error)
	SELECT c.of_at, c.of_trigger, c.of_kind, c.over, c.dead, c.since, c.now, 0, 'lost', 'other', c.why
	FROM c WHERE c.dead > 0 ON CONFLICT DO NOTHING`

// Who adopts a run knows its job as it is now.
// $3 node, $4 token
const adoptRuns = ` UPDATE runs AS r SET node = $3, token = $4, revision = c.job_revision, claimed_at = c.now, started_at = NULL, attempt = c.over + 1,
		state = 'claimed', next_attempt_at = NULL, http_status = 0, class = '', error = ''
	FROM c WHERE r.scheduled_at = c.of_at AND r.trigger_id = c.of_trigger AND r.kind = c.of_kind` + within + `
	RETURNING ` + heldColumns

// chosenSpan tells from when to when the chosen runs are. There are rarely any, and to look
// for them in all partitions is cheaper than to be ready to update in all of them.
const chosenSpan = ` SELECT min(c.of_at), max(c.of_at) FROM c`

const adoptableSpan = chosenSpan + ` WHERE CAST($4 AS bigint) <> 0` // every parameter needs a type

// sameRun joins the batch to the runs of its keys, in the days of within.
const sameRun = ` r.scheduled_at = b.scheduled_at AND r.trigger_id = b.trigger_id AND r.kind = b.kind` + within

// within bounds runs or attempts r by the days of the batch, so that the planner leaves the
// other partitions alone: planning for a month of them made claim and record together up to
// 1.6 times as slow.
//
// The ORs say nothing new. Of two plain bounds on a young partition, of which there are no
// statistics, the planner guesses that they leave one row in 200, and begins with the
// partition and not with the batch: both together were six times as slow. It recognises no pair
// of bounds in ORs, but prunes partitions by them.
// $1 first day, $2 end of the last
const within = ` AND (r.scheduled_at >= $1 OR r.scheduled_at > $1) AND (r.scheduled_at < $2 OR r.scheduled_at < $2 - 1)`

// fence lets pass only who holds the run, in the attempt that it holds it for.
const fence = sameRun + ` AND r.token = b.token AND r.attempt = b.attempt AND r.live = b.yes`

// beginnable chooses the runs of the batch that are still held. The update looks at the token
// again: a run may have been cancelled meanwhile.
const beginnable = ` SELECT r.scheduled_at AS of_at, r.trigger_id AS of_trigger, r.kind AS of_kind, r.token AS of_token, b.now
	FROM b JOIN runs AS r ON` + fence

const beginRuns = ` UPDATE runs AS r SET state = 'running', started_at = COALESCE(r.started_at, c.now)
	FROM c WHERE r.scheduled_at = c.of_at AND r.trigger_id = c.of_trigger AND r.kind = c.of_kind AND r.token = c.of_token` + within + `
	RETURNING ` + heldColumns

const failLostRuns = ` UPDATE runs AS r SET live = FALSE, state = 'lost', token = 0, ended_at = c.now, class = 'other',
		error = 'the node died when the request may have been sent, and the job wants it at most once'
	FROM c WHERE r.scheduled_at = c.of_at AND r.trigger_id = c.of_trigger AND r.kind = c.of_kind AND r.live` + within + `
	RETURNING ` + heldColumns

// $1 node, $2 token, 0 for any
const heldRuns = `SELECT ` + heldColumns + ` FROM runs
	WHERE live AND node = $1 AND (token = $2 OR $2 = 0) AND state NOT IN ('running', 'retrying')`

const releaseRuns = ` UPDATE runs AS r SET state = 'queued', node = 0, token = 0, claimed_at = NULL, started_at = NULL, attempt = r.attempt - 1
	FROM b WHERE` + fence

const recordRuns = ` UPDATE runs AS r SET live = FALSE, state = b.state, started_at = b.started_at, ended_at = b.ended_at,
		http_status = b.http_status, class = b.class, error = b.error
	FROM b WHERE` + fence

// recordLate keeps the results of attempts that were taken from their node. The outcome
// that the attempt already has, recorded once more, is no late result.
const recordLate = ` UPDATE attempts AS r SET late_result = b.late FROM b
	WHERE` + sameRun + ` AND r.attempt = b.attempt AND r.node = b.node AND r.late_result IS NULL
		AND NOT (r.state = b.state AND r.started_at = b.started_at AND r.ended_at = b.ended_at)`

// dueTriggers is one page of the window.
// $1 until, $3 due and $4 trigger of the last row, $5 limit, $6 number of apps
const dueTriggers = ` SELECT ` + triggerColumns + ` FROM triggers AS t
	WHERE t.state = 'waiting' AND NOT t.paused AND NOT t.job_paused AND t.due_at IS NOT NULL
		AND t.due_at <= $1 AND (t.due_at, t.id) > ($3, $4)
		AND (t.app_id IN (SELECT id FROM apps WHERE enabled AND ($6 = 0 OR name IN (SELECT name FROM b)))) = TRUE`

const onTime = ` AND t.due_at + t.misfire_after >= (SELECT now FROM n)`

const tooLate = ` AND t.due_at + t.misfire_after < (SELECT now FROM n)`

const dueOrder = ` ORDER BY t.due_at, t.id LIMIT $5`

// endedColumns are a trigger and the end of its latest run.
const endedColumns = ` SELECT ` + triggerColumns + `, coalesce(r.ended_at, m.decided_at) FROM `

// latestRun joins jobs and the latest runs to triggers: those that a claim or a settlement
// has made, which advanced the trigger to their instant. A fire that was skipped ended then.
const latestRun = ` JOIN jobs AS j ON j.id = t.job_id
		LEFT JOIN runs AS r ON r.scheduled_at = t.prev_fire_time AND r.trigger_id = t.id AND r.kind IN (1, 3)
		LEFT JOIN misfires AS m ON m.from_at = t.prev_fire_time AND m.trigger_id = t.id AND m.decision = 'skip' AND m.node <> 0
	WHERE j.enabled AND j.deleted_at IS NULL AND (NOT r.live AND r.ended_at IS NOT NULL OR m.decided_at IS NOT NULL) AND `

// anyEnded finds all fixed delays that await the end of a run by triggers_delayed.
// $1 limit
const anyEnded = endedColumns + `triggers AS t` + latestRun + `t.delayed AND t.next_fire_time IS NULL AND t.state = 'waiting'
		AND t.enabled AND t.deleted_at IS NULL ORDER BY t.id LIMIT $1`

// theseEnded are those of the batch.
// $1 limit
const theseEnded = endedColumns + `b JOIN triggers AS t ON t.id = b.id` + latestRun + `t.delayed = b.yes
		AND (t.next_fire_time IS NULL) = b.yes AND t.state = b.waiting AND t.enabled = b.yes AND (t.deleted_at IS NULL) = b.yes
	ORDER BY t.id LIMIT $1`

const waitingExtra = `'waiting' AS waiting`

// A trigger that is paused is armed, too; the poll leaves it out until it is resumed.
const scheduleNext = ` UPDATE triggers AS t SET anchor_at = b.anchor, next_fire_time = b.next, due_at = b.due, fired = t.fired + 1,
		state = CASE WHEN b.next IS NULL THEN 'complete' ELSE t.state END
	FROM b WHERE t.id = b.id AND t.state = b.waiting AND t.revision = b.revision AND t.calendar_revision = b.calendars
		AND t.prev_fire_time = b.prev AND (t.next_fire_time IS NULL) = b.yes AND t.delayed = b.yes`

// adoptable chooses runs that nobody works on. Its order lets none starve. Those of a
// disabled app wait until it is enabled, and those of a job that requires labels for a node
// that has them. days is within where it helps: SQLite has no partitions, and would read all
// runs between the bounds rather than look into runs_live.
// What a dead node had claimed may have been sent, unless its job wants a request at most once:
// then it would have been begun before. Such an attempt was none, and its number is used again.
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

// forfeited chooses the begun runs of dead nodes. $4 limit
func forfeited(days string) string {
	return ` SELECT r.scheduled_at AS of_at, r.trigger_id AS of_trigger, r.kind AS of_kind, r.attempt AS over,
			r.node AS dead, COALESCE(r.started_at, r.claimed_at) AS since, 'the node died' AS why, n.now
		FROM n CROSS JOIN nodes AS gone JOIN runs AS r ON r.node = gone.id AND r.live
		WHERE gone.state = 'dead' AND r.state = 'running'` + days + ` ORDER BY r.scheduled_at, r.trigger_id LIMIT $4`
}

// chosen makes a common table expression c of a query or a statement that returns rows.
func chosen(query string) string { return `, c AS (` + query + `)` }

func read(part string) statement { return statement{parts: []string{part}, reads: true} }

func write(parts ...string) statement { return statement{parts: parts} }

// writeAt is write for parts that share the present, in the parameter of that number.
func writeAt(present int, parts ...string) statement {
	return statement{parts: parts, present: present}
}

// common returns the hot statements that are the same in both flavors.
func common(f flavor) statements {
	due := f.rows(2, 7, "", nameColumns...)
	keys := f.rows(0, 3, "", keyColumns...)
	return statements{
		due:          read(due + dueTriggers + onTime + dueOrder),
		overdue:      read(due + dueTriggers + tooLate + dueOrder),
		held:         read(heldRuns),
		release:      write(keys + releaseRuns),
		begin:        write(keys + chosen(beginnable) + beginRuns),
		record:       write(f.rows(0, 3, "", recordColumns...) + recordRuns),
		responses:    write(f.rows(0, 1, "", responseColumns...) + keepResponses),
		late:         write(f.rows(0, 3, "", lateColumns...) + recordLate),
		ended:        read(anyEnded),
		endedOf:      read(f.rows(0, 2, waitingExtra, idColumns...) + theseEnded),
		adoptable:    read(f.rows(5, 8, "", adoptColumns...) + chosen(adoptable(within)) + adoptableSpan),
		forfeitable:  read(f.rows(3, 5, "", idColumns...) + chosen(forfeited(within)) + chosenSpan),
		scheduleNext: write(f.rows(0, 1, waitingExtra, scheduleNextColumns...) + scheduleNext),
	}
}
