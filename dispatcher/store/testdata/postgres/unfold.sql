INSERT INTO live_runs (scheduled_at, trigger_id, kind, job_id, app_id, revision, node, token,
    claimed_at, attempt, state)
SELECT f.scheduled_at, f.trigger_id, 1, f.job_id,
    coalesce((SELECT o.app_id FROM jobs AS o WHERE o.id = f.job_id), 0), f.revision, f.node,
    f.token, f.claimed_at, 1, 'claimed'
FROM (
  SELECT c.token, c.node, c.claimed_at, u.trigger_id, u.scheduled_at, u.job_id, u.revision
  FROM claims AS c
  CROSS JOIN LATERAL unnest(c.trigger_ids, c.scheduled_at, c.job_ids, c.revisions) AS u(trigger_id,
      scheduled_at, job_id, revision)
) AS f
WHERE f.token = ANY ($3::bigint[])
  AND CASE WHEN EXISTS (
  SELECT 1
  FROM live_runs AS r
  WHERE r.scheduled_at = f.scheduled_at
    AND r.trigger_id = f.trigger_id
    AND r.kind = 1
  LIMIT 1 OFFSET 0
) THEN FALSE ELSE NOT EXISTS (
  SELECT 1
  FROM runs AS r
  WHERE r.scheduled_at = f.scheduled_at
    AND r.trigger_id = f.trigger_id
    AND r.kind = 1
    AND (r.scheduled_at >= $1 OR r.scheduled_at > $1)
    AND (r.scheduled_at < $2 OR r.scheduled_at < $2 - 1)
  LIMIT 1 OFFSET 0
) END
ORDER BY f.scheduled_at, f.trigger_id
ON CONFLICT DO NOTHING
