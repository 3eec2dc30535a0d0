WITH n AS MATERIALIZED (
  SELECT CASE WHEN 0 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE 0 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS name, value ->> 1 AS holder, value ->> 2 AS fence
    FROM jsonb_each($1)
  ) AS u
  CROSS JOIN n
)
UPDATE locks AS l
SET locked_until = l.free_at
FROM b
WHERE l.name = b.name
  AND l.holder = b.holder
  AND l.fence = b.fence
