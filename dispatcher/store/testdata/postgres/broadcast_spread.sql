WITH n AS MATERIALIZED (
  SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint) AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($3::bigint[], $4::bigint[], $5::integer[], $6::bigint[], $7::bigint[],
      $8::bigint[]) AS u(scheduled_at, trigger_id, kind, token, attempt, job_id)
  CROSS JOIN n
  WHERE (u.scheduled_at = u.scheduled_at + 0) IS NOT FALSE
    AND (u.scheduled_at = u.scheduled_at - 0) IS NOT FALSE
)
INSERT INTO live_runs (scheduled_at, trigger_id, kind, job_id, app_id, revision, node, token,
    attempt, state, has_input)
SELECT b.scheduled_at, b.trigger_id, b.kind, b.job_id,
    coalesce((SELECT o.app_id FROM jobs AS o WHERE o.id = b.job_id), 0), CAST($1 AS BIGINT), 0,
    0, 0, 'queued', CAST($2 AS BOOLEAN)
FROM b
WHERE 1 = 1
ON CONFLICT DO NOTHING
