WITH n AS MATERIALIZED (
  SELECT CASE WHEN 0 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE 0 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (SELECT value ->> 0 AS id FROM jsonb_each($1)) AS u
  CROSS JOIN n
)
SELECT r.job_id, r.scheduled_at, r.trigger_id, r.kind, r.node, r.token, r.attempt
FROM (
  SELECT 0 AS id
  UNION ALL
  SELECT -1
  UNION ALL
  SELECT id
  FROM nodes
) AS g
CROSS JOIN b
JOIN runs AS r ON r.node = g.id
  AND r.job_id = b.id
  AND r.live
