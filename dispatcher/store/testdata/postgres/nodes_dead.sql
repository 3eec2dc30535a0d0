WITH n AS MATERIALIZED (
  SELECT CASE
      WHEN $1::bigint = 0 THEN CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)
      ELSE $1 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($2::bigint[]) AS u(id)
  CROSS JOIN n
  WHERE (u.id = u.id + 0) IS NOT FALSE
    AND (u.id = u.id - 0) IS NOT FALSE
)
SELECT o.id
FROM nodes AS o
WHERE o.state = 'dead'
  AND (o.empty_at IS NULL OR o.empty_at > (SELECT now FROM n) OR (SELECT now FROM n) - o.empty_at >= o.empty_at - o.heartbeat_at OR (SELECT now FROM n) - o.empty_at >= 300000)
ORDER BY o.id
