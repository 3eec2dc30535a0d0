WITH n AS MATERIALIZED (
  SELECT CASE WHEN 0 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE 0 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS scheduled_at, value ->> 1 AS trigger_id, value ->> 2 AS kind,
        value ->> 3 AS token, value ->> 4 AS attempt
    FROM jsonb_each($1)
  ) AS u
  CROSS JOIN n
),
c AS (
  SELECT b.scheduled_at AS of_at, b.trigger_id AS of_trigger, b.kind AS of_kind,
      b.token AS of_token, b.attempt AS over, b.now
  FROM b
)
UPDATE live_runs AS r
SET state = 'running', started_at = COALESCE(r.started_at, c.now)
FROM c
WHERE r.scheduled_at = c.of_at
  AND r.trigger_id = c.of_trigger
  AND r.kind = c.of_kind
  AND r.token = c.of_token
  AND r.attempt = c.over
RETURNING scheduled_at, trigger_id, kind, job_id, revision, token, attempt, failures, retry_until,
    claimed_at, TRUE
