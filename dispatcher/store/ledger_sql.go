package store

// A run is in one of three tables: over, in runs; else in live_runs; or it is a fire of a claim that is in neither of
// them yet. Each of the following selects the runs of one table, named r, with the same columns.
const (
	endedRuns = `SELECT r.scheduled_at, r.trigger_id, r.kind, r.job_id, r.revision, coalesce(r.state, 'succeeded') AS state,
		r.attempt, r.node, r.ended_at - r.claimed_ms AS claimed_at, r.ended_at - r.started_ms AS started_at, r.ended_at,
		CAST(NULL AS BIGINT) AS next_attempt_at, r.http_status, coalesce(r.class, '') AS class, coalesce(r.error, '') AS error,
		'' AS waits_for, '' AS waits_at, CAST(NULL AS BIGINT) AS probe_at, CAST(NULL AS TEXT) AS callback
		FROM runs AS r`

	unendedRuns = `SELECT r.scheduled_at, r.trigger_id, r.kind, r.job_id, r.revision, r.state, r.attempt, r.node, r.claimed_at,
		r.started_at, CAST(NULL AS BIGINT) AS ended_at, CASE WHEN r.waits_for = 0 THEN r.next_attempt_at END AS next_attempt_at,
		r.http_status, r.class, r.error, coalesce((SELECT h.host FROM host_waits AS h WHERE h.id = r.waits_for), '') AS waits_for,
		CASE WHEN r.node = -1 THEN coalesce((SELECT s.endpoint FROM slots AS s WHERE s.job_id = r.job_id
			AND s.scheduled_at = r.scheduled_at AND s.trigger_id = r.trigger_id AND s.kind = r.kind AND s.node = -1), '')
			ELSE '' END AS waits_at,
		(SELECT h.probe_at FROM host_waits AS h WHERE h.id = r.waits_for AND h.pause > 0) AS probe_at, r.callback
		FROM live_runs AS r`
)

// isDead is the condition of the index runs_dead on rows r of the history, in which no other run has an entry.
const isDead = `r.state IN ('failed', 'timed_out', 'lost')`

// deadRuns selects the dead letters of the history.
const deadRuns = endedRuns + ` WHERE ` + isDead

const expiredIn = ` AND r.scheduled_at >= $2 AND r.scheduled_at < $3 AND r.ended_at < $1`

// contenderColumns are a contender of a live run r.
const contenderColumns = ` r.job_id, r.scheduled_at, r.trigger_id, r.kind, r.node, r.token, r.attempt`
