WITH n AS MATERIALIZED (
  SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint) AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($1::bigint[], $2::bigint[], $3::integer[]) AS u(scheduled_at, trigger_id, kind)
  CROSS JOIN n
  WHERE (u.scheduled_at = u.scheduled_at + 0) IS NOT FALSE
    AND (u.scheduled_at = u.scheduled_at - 0) IS NOT FALSE
)
SELECT r.job_id, r.scheduled_at, r.trigger_id, r.kind, r.node, r.token, r.attempt
FROM b
CROSS JOIN LATERAL (
  SELECT r.*
  FROM live_runs AS r
  WHERE r.scheduled_at = b.scheduled_at
    AND r.trigger_id = b.trigger_id
    AND r.kind >= 16
    AND r.kind % 16 = b.kind OFFSET 0
) AS r
ORDER BY r.scheduled_at, r.trigger_id, r.kind
