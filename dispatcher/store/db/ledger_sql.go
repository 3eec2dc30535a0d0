package db

// A run is in one of three tables: over, in runs; else in live_runs; or it is a fire of a claim that is in neither of
// them yet. Each of the following selects the runs of one table, named r, with the same columns.
const (
	EndedRuns = `SELECT r.scheduled_at, r.trigger_id, r.kind, r.job_id, r.revision, coalesce(r.state, 'succeeded') AS state,
		r.attempt, r.node, r.ended_at - r.claimed_ms AS claimed_at, r.ended_at - r.started_ms AS started_at, r.ended_at,
		CAST(NULL AS BIGINT) AS next_attempt_at, r.http_status, coalesce(r.class, '') AS class, coalesce(r.error, '') AS error,
		'' AS waits_for, '' AS waits_at, CAST(NULL AS BIGINT) AS probe_at, CAST(NULL AS TEXT) AS callback
		FROM runs AS r`

	UnendedRuns = `SELECT r.scheduled_at, r.trigger_id, r.kind, r.job_id, r.revision, r.state, r.attempt, r.node, r.claimed_at,
		r.started_at, CAST(NULL AS BIGINT) AS ended_at, CASE WHEN r.waits_for = 0 THEN r.next_attempt_at END AS next_attempt_at,
		r.http_status, r.class, r.error, coalesce((SELECT h.host FROM host_waits AS h WHERE h.id = r.waits_for), '') AS waits_for,
		CASE WHEN r.node = -1 THEN coalesce((SELECT s.endpoint FROM slots AS s WHERE s.job_id = r.job_id
			AND s.scheduled_at = r.scheduled_at AND s.trigger_id = r.trigger_id AND s.kind = r.kind AND s.node = -1), '')
			ELSE '' END AS waits_at,
		(SELECT h.probe_at FROM host_waits AS h WHERE h.id = r.waits_for AND h.pause > 0) AS probe_at, r.callback
		FROM live_runs AS r`
)

// IsDead is the condition of the index runs_dead on rows r of the history, in which no other run has an entry.
const IsDead = `r.state IN ('failed', 'timed_out', 'lost')`

// DeadRuns selects the dead letters of the history.
const DeadRuns = EndedRuns + ` WHERE ` + IsDead

// ExpiredIn is the condition of the runs r between $2 and $3 that ended before $1.
const ExpiredIn = ` AND r.scheduled_at >= $2 AND r.scheduled_at < $3 AND r.ended_at < $1`

// ContenderColumns are a contender of a live run r.
const ContenderColumns = ` r.job_id, r.scheduled_at, r.trigger_id, r.kind, r.node, r.token, r.attempt`
