-- Part 1 of 3, in one transaction
WITH n AS MATERIALIZED (
  SELECT CASE WHEN $1 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE $1 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS id, value ->> 1 AS heartbeat
    FROM jsonb_each($3)
  ) AS u
  CROSS JOIN n
)
UPDATE nodes AS o
SET heartbeat_at = b.now
FROM b
WHERE o.heartbeat_at > b.now + $2
  AND o.state <> 'dead'
-- Part 2 of 3, in one transaction
WITH n AS MATERIALIZED (
  SELECT CASE WHEN $1 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE $1 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS id, value ->> 1 AS heartbeat
    FROM jsonb_each($3)
  ) AS u
  CROSS JOIN n
)
DELETE FROM nodes
WHERE id IN (
  SELECT o.id
  FROM b
  JOIN nodes AS o ON o.heartbeat_at < b.now - $2
  WHERE CASE WHEN o.state = 'dead' AND o.heartbeat_at < b.now - $2 THEN NOT EXISTS (
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
  ORDER BY o.heartbeat_at
  LIMIT 100
)
-- Part 3 of 3, in one transaction
WITH n AS MATERIALIZED (
  SELECT CASE WHEN $1 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE $1 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS id, value ->> 1 AS heartbeat
    FROM jsonb_each($3)
  ) AS u
  CROSS JOIN n
)
UPDATE nodes AS o
SET state = 'dead'
FROM b
JOIN nodes AS me ON me.id = b.id
WHERE me.state <> 'dead'
  AND me.heartbeat_at = b.heartbeat
  AND (b.now - me.heartbeat_at) * 2 < $2
  AND o.heartbeat_at < b.now - $2
  AND o.state <> 'dead'
