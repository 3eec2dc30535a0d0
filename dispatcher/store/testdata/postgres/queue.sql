WITH n AS MATERIALIZED (
  SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint) AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($3::bigint[], $4::bigint[], $5::integer[], $6::bigint[], $7::bigint[],
      $8::boolean[]) AS u(scheduled_at, trigger_id, kind, job_id, revision, has_input)
  CROSS JOIN n
  WHERE (u.scheduled_at = u.scheduled_at + 0) IS NOT FALSE
    AND (u.scheduled_at = u.scheduled_at - 0) IS NOT FALSE
)
INSERT INTO live_runs (scheduled_at, trigger_id, kind, job_id, app_id, revision, node, token,
    attempt, state, has_input)
SELECT b.scheduled_at, b.trigger_id, b.kind, b.job_id,
    coalesce((SELECT o.app_id FROM jobs AS o WHERE o.id = b.job_id), 0), b.revision, 0, 0, 0,
    'queued', b.has_input
FROM b
WHERE NOT EXISTS (
  SELECT 1
  FROM runs AS r
  WHERE r.scheduled_at = b.scheduled_at
    AND r.trigger_id = b.trigger_id
    AND r.kind = b.kind
    AND (r.scheduled_at >= $1 OR r.scheduled_at > $1)
    AND (r.scheduled_at < $2 OR r.scheduled_at < $2 - 1)
)
ON CONFLICT DO NOTHING
RETURNING scheduled_at, trigger_id, kind
