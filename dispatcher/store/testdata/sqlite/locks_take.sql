WITH n AS MATERIALIZED (
  SELECT CASE WHEN $1 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE $1 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (SELECT value ->> 0 AS name FROM jsonb_each($5)) AS u
  CROSS JOIN n
)
INSERT INTO locks AS l (name, holder, fence, locked_until, free_at)
SELECT b.name, $2, 1, b.now + $3, b.now + $4
FROM b
LEFT JOIN locks AS o ON o.name = b.name
WHERE o.name IS NULL
  OR o.locked_until <= b.now
  OR o.locked_until > b.now + 2 * $3
ORDER BY b.name
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, fence = l.fence + 1,
    locked_until = excluded.locked_until, free_at = excluded.free_at
WHERE l.locked_until <= excluded.locked_until - $3
  OR l.locked_until > excluded.locked_until + $3
RETURNING name, fence
