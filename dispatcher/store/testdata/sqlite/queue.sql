WITH n AS MATERIALIZED (
  SELECT CASE WHEN 0 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE 0 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS scheduled_at, value ->> 1 AS trigger_id, value ->> 2 AS kind,
        value ->> 3 AS job_id, value ->> 4 AS revision, value ->> 5 AS has_input
    FROM jsonb_each($3)
  ) AS u
  CROSS JOIN n
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
