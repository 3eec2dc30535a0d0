WITH n AS MATERIALIZED (
  SELECT CASE WHEN 0 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE 0 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (SELECT value ->> 0 AS id FROM jsonb_each($1)) AS u
  CROSS JOIN n
)
SELECT j.id, j.concurrency_policy, j.max_concurrency, j.queue_limit, j.endpoint_concurrency
FROM b
JOIN jobs AS j ON j.id = b.id
ORDER BY j.id
