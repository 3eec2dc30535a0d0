WITH n AS MATERIALIZED (
  SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint) AS now
),
b AS MATERIALIZED (
  SELECT u.*, -1 AS waits, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($1::bigint[]) AS u(id)
  CROSS JOIN n
  WHERE (u.id = u.id + 0) IS NOT FALSE
    AND (u.id = u.id - 0) IS NOT FALSE
)
SELECT r.job_id, r.scheduled_at, r.trigger_id, r.kind, r.node, r.token, r.attempt
FROM b
CROSS JOIN LATERAL (
  SELECT r.*
  FROM live_runs AS r
  WHERE r.node = b.waits
    AND r.state NOT IN ('retrying', 'waiting_callback')
    AND r.job_id = b.id OFFSET 0
) AS r
