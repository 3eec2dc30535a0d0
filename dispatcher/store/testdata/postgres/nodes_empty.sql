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
UPDATE nodes
SET empty_at = (SELECT now FROM n)
WHERE id IN (
  SELECT o.id
  FROM b
  JOIN nodes AS o ON o.id = b.id
  WHERE CASE WHEN o.state = 'dead' AND b.yes THEN NOT EXISTS (
    SELECT 1
    FROM claims AS k
    WHERE k.node = o.id
    LIMIT 1 OFFSET 0
  ) AND NOT EXISTS (
    SELECT 1
    FROM live_runs AS r
    WHERE r.node = o.id
      AND r.state NOT IN ('retrying', 'waiting_callback')
    LIMIT 1 OFFSET 0
  ) ELSE b.no END
  ORDER BY o.id
  FOR UPDATE SKIP LOCKED
)
