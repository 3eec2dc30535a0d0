WITH n AS MATERIALIZED (
  SELECT CASE WHEN 0 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE 0 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS scheduled_at, value ->> 1 AS trigger_id, value ->> 2 AS kind,
        value ->> 3 AS token, value ->> 4 AS attempt, value ->> 5 AS error
    FROM jsonb_each($3)
  ) AS u
  CROSS JOIN n
)
UPDATE runs AS r
SET live = FALSE, state = 'cancelled', token = 0, next_attempt_at = NULL, ended_at = b.now,
    class = 'cancelled', error = b.error
FROM b
WHERE r.scheduled_at = b.scheduled_at
  AND r.trigger_id = b.trigger_id
  AND r.kind = b.kind
  AND (r.scheduled_at >= $1 OR r.scheduled_at > $1)
  AND (r.scheduled_at < $2 OR r.scheduled_at < $2 - 1)
  AND r.token = b.token
  AND r.attempt = b.attempt
  AND r.live = b.yes
