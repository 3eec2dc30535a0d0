WITH n AS MATERIALIZED (
  SELECT CASE WHEN 0 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE 0 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS scheduled_at, value ->> 1 AS trigger_id, value ->> 2 AS kind,
        value ->> 3 AS token, value ->> 4 AS attempt
    FROM jsonb_each($3)
  ) AS u
  CROSS JOIN n
),
c AS (
  SELECT r.scheduled_at AS of_at, r.trigger_id AS of_trigger, r.kind AS of_kind,
      r.token AS of_token, b.now
  FROM b
  JOIN runs AS r ON r.scheduled_at = b.scheduled_at
    AND r.trigger_id = b.trigger_id
    AND r.kind = b.kind
    AND (r.scheduled_at >= $1 OR r.scheduled_at > $1)
    AND (r.scheduled_at < $2 OR r.scheduled_at < $2 - 1)
    AND r.token = b.token
    AND r.attempt = b.attempt
    AND r.live = b.yes
)
UPDATE runs AS r
SET state = 'running', started_at = COALESCE(r.started_at, c.now)
FROM c
WHERE r.scheduled_at = c.of_at
  AND r.trigger_id = c.of_trigger
  AND r.kind = c.of_kind
  AND r.token = c.of_token
  AND (r.scheduled_at >= $1 OR r.scheduled_at > $1)
  AND (r.scheduled_at < $2 OR r.scheduled_at < $2 - 1)
RETURNING scheduled_at, trigger_id, kind, job_id, revision, token, attempt, failures, retry_until
