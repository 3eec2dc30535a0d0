WITH n AS MATERIALIZED (
  SELECT CASE
      WHEN $3::bigint = 0 THEN CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)
      ELSE $3 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($5::bigint[]) AS u(id)
  CROSS JOIN n
),
c AS (
  SELECT r.scheduled_at AS of_at, r.trigger_id AS of_trigger, r.kind AS of_kind, r.attempt AS over,
      r.node AS dead, COALESCE(r.started_at, r.claimed_at) AS since, 'the node died' AS why,
      n.now
  FROM n
  CROSS JOIN nodes AS gone
  JOIN runs AS r ON r.node = gone.id
    AND r.live
  WHERE gone.state = 'dead'
    AND r.state = 'running'
    AND (r.scheduled_at >= $1 OR r.scheduled_at > $1)
    AND (r.scheduled_at < $2 OR r.scheduled_at < $2 - 1)
  ORDER BY r.scheduled_at, r.trigger_id
  LIMIT $4
  FOR UPDATE OF r SKIP LOCKED
),
l AS (
  INSERT INTO attempts (scheduled_at, trigger_id, kind, attempt, node, started_at, ended_at,
      http_status, state, class, error)
  SELECT c.of_at, c.of_trigger, c.of_kind, c.over, c.dead, c.since, c.now, 0, 'lost', 'other',
      c.why
  FROM c
  WHERE c.dead > 0
  ON CONFLICT DO NOTHING
)
UPDATE runs AS r
SET live = FALSE, state = 'lost', token = 0, ended_at = c.now, class = 'other',
    error = 'the node died when the request may have been sent, and the job wants it at most once'
FROM c
WHERE r.scheduled_at = c.of_at
  AND r.trigger_id = c.of_trigger
  AND r.kind = c.of_kind
  AND r.live
  AND (r.scheduled_at >= $1 OR r.scheduled_at > $1)
  AND (r.scheduled_at < $2 OR r.scheduled_at < $2 - 1)
RETURNING scheduled_at, trigger_id, kind, job_id, revision, token, attempt, failures, retry_until
