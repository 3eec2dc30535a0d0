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
    coalesce(r.attempt, 0), r.job_id IS NOT NULL, s.node, s.token, coalesce(o.state, 'dead')
FROM b
JOIN slots AS s ON s.job_id = b.id
LEFT JOIN live_runs AS r ON r.scheduled_at = ANY (ARRAY[s.scheduled_at])
  AND r.trigger_id = s.trigger_id
  AND r.kind = s.kind
LEFT JOIN nodes AS o ON o.id = s.node
