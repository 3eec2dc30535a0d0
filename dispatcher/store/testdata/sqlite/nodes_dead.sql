WITH n AS MATERIALIZED (
  SELECT CASE WHEN $1 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE $1 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (SELECT value ->> 0 AS id FROM jsonb_each($2)) AS u
  CROSS JOIN n
)
SELECT o.id
FROM nodes AS o
WHERE o.state = 'dead'
  AND (o.empty_at IS NULL OR o.empty_at > (SELECT now FROM n) OR (SELECT now FROM n) - o.empty_at >= o.empty_at - o.heartbeat_at OR (SELECT now FROM n) - o.empty_at >= 300000)
ORDER BY o.id
