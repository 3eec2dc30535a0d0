WITH n AS MATERIALIZED (
  SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint) AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($2::bigint[]) AS u(id)
  CROSS JOIN n
  WHERE (u.id = u.id + 0) IS NOT FALSE
    AND (u.id = u.id - 0) IS NOT FALSE
)
SELECT r.*
FROM b
CROSS JOIN LATERAL ((
  SELECT r.job_id, r.scheduled_at, r.trigger_id, r.kind, r.node, r.token, r.attempt
  FROM live_runs AS r
  WHERE r.job_id = b.id
    AND r.kind < 16
    AND r.node <> -3
  ORDER BY r.scheduled_at + 0, r.trigger_id, r.kind
  LIMIT $1
) UNION ALL (
  SELECT r.job_id, r.scheduled_at, r.trigger_id, r.kind, r.node, r.token, r.attempt
  FROM live_runs AS r
  WHERE r.job_id = b.id
    AND r.kind < 16
    AND r.node <> -3
  ORDER BY r.scheduled_at + 0 DESC, r.trigger_id DESC, r.kind DESC
  LIMIT $1
)) AS r
