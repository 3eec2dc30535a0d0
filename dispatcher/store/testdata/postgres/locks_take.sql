WITH n AS MATERIALIZED (
  SELECT CASE
      WHEN $1::bigint = 0 THEN CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)
      ELSE $1 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($5::text[]) AS u(name)
  CROSS JOIN n
  WHERE (u.name = u.name || '') IS NOT FALSE
    AND (u.name = '' || u.name) IS NOT FALSE
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
