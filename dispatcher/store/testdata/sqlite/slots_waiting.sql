WITH n AS MATERIALIZED (
  SELECT CASE WHEN 0 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE 0 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, -1 AS waits, n.now, TRUE AS yes, FALSE AS no
  FROM (SELECT value ->> 0 AS id FROM jsonb_each($1)) AS u
  CROSS JOIN n
)
SELECT r.job_id, r.scheduled_at, r.trigger_id, r.kind, r.node, r.token, r.attempt
FROM b
CROSS JOIN live_runs AS r ON r.node = b.waits
  AND r.state NOT IN ('retrying', 'waiting_callback')
  AND r.job_id = b.id
