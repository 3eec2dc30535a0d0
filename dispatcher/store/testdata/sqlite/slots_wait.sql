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
)
UPDATE live_runs AS r
SET state = 'queued', node = -1, token = 0, claimed_at = NULL, attempt = r.attempt - 1, waited =
    CASE WHEN r.attempt = 1 THEN 'slot' ELSE r.waited END
FROM b
WHERE r.scheduled_at = b.scheduled_at
  AND r.trigger_id = b.trigger_id
  AND r.kind = b.kind
  AND r.token = b.token
  AND r.attempt = b.attempt
