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
      n.now
  FROM n
  CROSS JOIN runs AS r
  WHERE r.state = 'retrying'
    AND r.next_attempt_at <= n.now
    AND r.retry_until < n.now
    AND (r.scheduled_at >= $1 OR r.scheduled_at > $1)
    AND (r.scheduled_at < $2 OR r.scheduled_at < $2 - 1)
  ORDER BY r.scheduled_at, r.trigger_id
  LIMIT $4
  FOR NO KEY UPDATE OF r SKIP LOCKED
)
UPDATE runs AS r
SET live = FALSE, next_attempt_at = NULL, ended_at = c.now, state = COALESCE((
  SELECT a.state
  FROM attempts AS a
  WHERE a.scheduled_at = c.of_at
    AND a.trigger_id = c.of_trigger
    AND a.kind = c.of_kind
    AND a.attempt = c.over
), 'failed')
FROM c
WHERE r.scheduled_at = c.of_at
  AND r.trigger_id = c.of_trigger
  AND r.kind = c.of_kind
  AND r.state = 'retrying'
  AND (r.scheduled_at >= $1 OR r.scheduled_at > $1)
  AND (r.scheduled_at < $2 OR r.scheduled_at < $2 - 1)
RETURNING scheduled_at, trigger_id, kind, job_id, revision, token, attempt, failures, retry_until
