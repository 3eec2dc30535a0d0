WITH n AS MATERIALIZED (
  SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint) AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($1::bigint[], $2::bigint[], $3::integer[], $4::bigint[],
      $5::bigint[]) AS u(scheduled_at, trigger_id, kind, token, attempt)
  CROSS JOIN n
  WHERE (u.scheduled_at = u.scheduled_at + 0) IS NOT FALSE
    AND (u.scheduled_at = u.scheduled_at - 0) IS NOT FALSE
),
c AS (
  SELECT b.scheduled_at AS of_at, b.trigger_id AS of_trigger, b.kind AS of_kind,
      b.token AS of_token, b.attempt AS over, b.now
  FROM b
)
UPDATE live_runs AS r
SET state = 'running', started_at = COALESCE(r.started_at, c.now)
FROM c
WHERE r.scheduled_at = ANY (ARRAY[c.of_at])
  AND r.trigger_id = c.of_trigger
  AND r.kind = c.of_kind
  AND r.token = c.of_token
  AND r.attempt = c.over
RETURNING scheduled_at, trigger_id, kind, job_id, revision, token, attempt, failures, retry_until,
    claimed_at, TRUE
