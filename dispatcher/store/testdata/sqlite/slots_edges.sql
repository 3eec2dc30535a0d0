WITH n AS MATERIALIZED (
  SELECT CASE WHEN 0 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE 0 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (SELECT value ->> 0 AS id FROM jsonb_each($2)) AS u
  CROSS JOIN n
)
SELECT r.job_id, r.scheduled_at, r.trigger_id, r.kind, r.node, r.token, r.attempt
FROM b
CROSS JOIN live_runs AS r
WHERE (r.scheduled_at, r.trigger_id, r.kind) IN (
  SELECT x.scheduled_at, x.trigger_id, x.kind
  FROM live_runs AS x
  WHERE x.job_id = b.id
    AND x.kind < 16
    AND x.node <> -3
  ORDER BY x.scheduled_at + 0, x.trigger_id, x.kind
  LIMIT $1
)
UNION ALL
SELECT r.job_id, r.scheduled_at, r.trigger_id, r.kind, r.node, r.token, r.attempt
FROM b
CROSS JOIN live_runs AS r
WHERE (r.scheduled_at, r.trigger_id, r.kind) IN (
  SELECT x.scheduled_at, x.trigger_id, x.kind
  FROM live_runs AS x
  WHERE x.job_id = b.id
    AND x.kind < 16
    AND x.node <> -3
  ORDER BY x.scheduled_at + 0 DESC, x.trigger_id DESC, x.kind DESC
  LIMIT $1
)
