WITH n AS MATERIALIZED (
  SELECT CASE WHEN 0 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE 0 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS scheduled_at, value ->> 1 AS trigger_id, value ->> 2 AS kind
    FROM jsonb_each($1)
  ) AS u
  CROSS JOIN n
)
SELECT r.job_id, r.scheduled_at, r.trigger_id, r.kind, r.node, r.token, r.attempt
FROM b
JOIN live_runs AS r ON r.scheduled_at = b.scheduled_at
  AND r.trigger_id = b.trigger_id
  AND r.kind >= 16
  AND r.kind % 16 = b.kind
ORDER BY r.scheduled_at, r.trigger_id, r.kind
