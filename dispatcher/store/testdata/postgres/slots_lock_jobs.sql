WITH n AS MATERIALIZED (
  SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint) AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($1::bigint[]) AS u(id)
  CROSS JOIN n
  WHERE (u.id = u.id + 0) IS NOT FALSE
    AND (u.id = u.id - 0) IS NOT FALSE
)
SELECT j.id, j.concurrency_policy, j.max_concurrency, j.queue_limit, j.endpoint_concurrency
FROM b
JOIN jobs AS j ON j.id = b.id
ORDER BY j.id
FOR NO KEY UPDATE OF j SKIP LOCKED
