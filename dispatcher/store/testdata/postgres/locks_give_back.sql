WITH n AS MATERIALIZED (
  SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint) AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS u(name, holder, fence)
  CROSS JOIN n
  WHERE (u.name = u.name || '') IS NOT FALSE
    AND (u.name = '' || u.name) IS NOT FALSE
)
UPDATE locks AS l
SET locked_until = l.free_at
FROM b
WHERE l.name = b.name
  AND l.holder = b.holder
  AND l.fence = b.fence
