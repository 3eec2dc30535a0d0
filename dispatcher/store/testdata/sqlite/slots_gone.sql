WITH n AS MATERIALIZED (
  SELECT CASE WHEN 0 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE 0 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS id, value ->> 1 AS endpoint
    FROM jsonb_each($1)
  ) AS u
  CROSS JOIN n
)
SELECT b.id, b.endpoint
FROM b
WHERE NOT EXISTS (
  SELECT 1
  FROM jobs AS j
  JOIN endpoint_groups AS g ON g.app_id = j.app_id
    AND g.name = j.target_group
    AND g.deleted_at IS NULL
  JOIN endpoints AS e ON e.group_id = g.id
  WHERE j.id = b.id
    AND e.id = b.endpoint
    AND NOT e.draining
  LIMIT 1 OFFSET 0
)
  AND NOT EXISTS (
  SELECT 1
  FROM jobs AS j
  JOIN endpoint_groups AS g ON g.app_id = j.app_id
    AND g.name = j.target_group
  WHERE j.id = b.id
    AND g.deleted_at IS NULL
    AND g.definition LIKE '%"dns":{%'
  LIMIT 1 OFFSET 0
)
