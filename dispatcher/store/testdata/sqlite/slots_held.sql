WITH n AS MATERIALIZED (
  SELECT CASE WHEN 0 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE 0 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (SELECT value ->> 0 AS id FROM jsonb_each($1)) AS u
  CROSS JOIN n
)
SELECT s.job_id, s.scheduled_at, s.trigger_id, s.kind, coalesce(r.node, 0), coalesce(r.token, 0),
    coalesce(r.attempt, 0), r.job_id IS NOT NULL, s.node, s.token, coalesce(o.state, 'dead')
FROM b
JOIN slots AS s ON s.job_id = b.id
LEFT JOIN live_runs AS r ON r.scheduled_at = s.scheduled_at
  AND r.trigger_id = s.trigger_id
  AND r.kind = s.kind
LEFT JOIN nodes AS o ON o.id = s.node
