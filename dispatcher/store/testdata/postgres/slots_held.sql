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
SELECT s.job_id, s.scheduled_at, s.trigger_id, s.kind, coalesce(r.node, 0), coalesce(r.token, 0),
    coalesce(r.attempt, 0), r.job_id IS NOT NULL
  AND (s.endpoint = '' OR r.state <> 'retrying'), s.node, s.token, coalesce(o.state, 'dead'), CASE
      WHEN r.state = 'waiting_shards' THEN CASE WHEN EXISTS (
  SELECT 1
  FROM live_runs AS x
  WHERE x.scheduled_at = r.scheduled_at
    AND x.trigger_id = r.trigger_id
    AND x.kind >= 16
    AND x.kind % 16 = r.kind
    AND x.token <> 0
  LIMIT 1 OFFSET 0
) THEN 1 ELSE 0 END ELSE 0 END, s.endpoint
FROM b
JOIN slots AS s ON s.job_id = b.id
LEFT JOIN live_runs AS r ON r.scheduled_at = ANY (ARRAY[s.scheduled_at])
  AND r.trigger_id = s.trigger_id
  AND r.kind = s.kind
LEFT JOIN nodes AS o ON o.id = s.node
