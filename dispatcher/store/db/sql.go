package db

import "slices"

// Shared parts of the hot statements. They rely on these names: b is the batch, n holds now (see Flavor.Rows), c are
// the chosen runs, t a trigger's clock, r a run.

// Statement is a hot statement. Its parts are one transaction; each has the same parameters.
type Statement struct {
	Parts []string
	reads bool // changes nothing
	// OrElse is run instead if the first part finds a row that it was to insert; that part has then changed nothing.
	// nil: this is an error. Allowing for such a row in each insert with ON CONFLICT makes PostgreSQL insert it
	// tentatively first: a record cost a sixth more.
	OrElse []string
	// Now is the number of the parameter that holds now, for a statement of several parts that share it.
	Now int
	// counted are the parts whose rows count as affected; none: the last.
	counted []int
}

// counts reports whether the rows of a part count as affected.
func (s Statement) counts(part int) bool {
	if len(s.counted) == 0 {
		return part == len(s.Parts)-1
	}
	return slices.Contains(s.counted, part)
}

// Within bounds the attempts r by the days of the batch, so that the planner ignores the other partitions: planning
// for a month of them made claim and record together up to 1.6 times as slow.
//
// The ORs are redundant. For two plain bounds on a young partition, which has no
// statistics, the planner guesses that they leave one row in 200, and begins with the
// partition and not with the batch: both together were six times as slow. It recognises no pair
// of bounds in ORs, but prunes partitions by them.
// $1 first day, $2 end of the last
const Within = ` AND (r.scheduled_at >= $1 OR r.scheduled_at > $1) AND (r.scheduled_at < $2 OR r.scheduled_at < $2 - 1)`

// OfBatch joins the batch to the rows r of its runs.
func OfBatch(f Flavor) string { return f.SameRun("r", "b.scheduled_at", "b.trigger_id", "b.kind") }

// OfChosen joins the chosen runs to their rows r.
func OfChosen(f Flavor) string { return f.SameRun("r", "c.of_at", "c.of_trigger", "c.of_kind") }

// parked are the states of live runs that no node holds and that wait for a time, not for a node. They are not in
// live_runs_node; these texts are also the conditions of the indexes.
const parked = `('retrying', 'waiting_callback')`

// IsParked selects the live runs r in these states, and NotParked the others.
const (
	IsParked  = `r.state IN ` + parked
	NotParked = `r.state NOT IN ` + parked
)

// Fence joins the batch to the live runs r, and keeps only those that the caller holds, in the attempt that it holds
// them for.
func Fence(f Flavor) string {
	return OfBatch(f) + ` AND r.token = b.token AND r.attempt = b.attempt`
}

// How rows are locked, where databases lock rows: LockToDelete waits for rows locked by others, SkipLocked leaves
// them out, and LockedThere means that their query has locked them.
const (
	LockToDelete   = " FOR UPDATE"
	SkipLockedRows = " SKIP LOCKED"
	LockedThere    = " LOCKED"
)

// Chosen makes a common table expression c of a query or of a statement that returns rows.
func Chosen(query string) string { return `, c AS (` + query + `)` }

// Reading is a statement that changes nothing.
func Reading(part string) Statement { return Statement{Parts: []string{part}, reads: true} }

// Writing is a statement of parts.
func Writing(parts ...string) Statement { return Statement{Parts: parts} }

// WritingAt is Writing for parts that share now, in the parameter with that number.
func WritingAt(now int, parts ...string) Statement {
	return Statement{Parts: parts, Now: now}
}

// A run is in one of three places: in runs when it is over; else in live_runs, or it is a fire of a claim that is in
// neither table yet. Each of the following selects the runs of one place, named r, with the same columns.
const (
	EndedRuns = `SELECT r.scheduled_at, r.trigger_id, r.kind, r.job_id, r.revision, coalesce(r.state, 'succeeded') AS state,
		r.attempt, r.node, r.ended_at - r.claimed_ms AS claimed_at, r.ended_at - r.started_ms AS started_at, r.ended_at,
		CAST(NULL AS BIGINT) AS next_attempt_at, r.http_status, coalesce(r.class, '') AS class, coalesce(r.error, '') AS error,
		'' AS waits_for, '' AS waits_at, CAST(NULL AS BIGINT) AS probe_at, CAST(NULL AS TEXT) AS callback, coalesce(r.waited, '') AS waited
		FROM runs AS r`

	UnendedRuns = `SELECT r.scheduled_at, r.trigger_id, r.kind, r.job_id, r.revision, r.state, r.attempt, r.node, r.claimed_at,
		r.started_at, CAST(NULL AS BIGINT) AS ended_at, CASE WHEN r.waits_for = 0 THEN r.next_attempt_at END AS next_attempt_at,
		r.http_status, r.class, r.error, coalesce((SELECT h.host FROM host_waits AS h WHERE h.id = r.waits_for), '') AS waits_for,
		CASE WHEN r.node = -1 THEN coalesce((SELECT s.endpoint FROM slots AS s WHERE s.job_id = r.job_id
			AND s.scheduled_at = r.scheduled_at AND s.trigger_id = r.trigger_id AND s.kind = r.kind AND s.node = -1), '')
			ELSE '' END AS waits_at,
		(SELECT h.probe_at FROM host_waits AS h WHERE h.id = r.waits_for AND h.pause > 0) AS probe_at, r.callback, r.waited
		FROM live_runs AS r`
)

// IsDead is the condition of the index runs_dead on rows r of the history. Other runs are not in that index.
const IsDead = `r.state IN ('failed', 'timed_out', 'lost')`

// DeadRuns selects the dead letters of the history.
const DeadRuns = EndedRuns + ` WHERE ` + IsDead

// ExpiredIn is the condition of the runs r between $2 and $3 that ended before $1.
const ExpiredIn = ` AND r.scheduled_at >= $2 AND r.scheduled_at < $3 AND r.ended_at < $1`

// ContenderColumns are a contender of a live run r.
const ContenderColumns = ` r.job_id, r.scheduled_at, r.trigger_id, r.kind, r.node, r.token, r.attempt`
