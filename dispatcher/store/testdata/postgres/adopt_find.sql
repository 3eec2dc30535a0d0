WITH n AS MATERIALIZED (
  SELECT CASE
      WHEN $2::bigint = 0 THEN CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)
      ELSE $2 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($9::text[], $10::text[]) AS u(name, labels)
  CROSS JOIN n
  WHERE (u.name = u.name || '') IS NOT FALSE
    AND (u.name = '' || u.name) IS NOT FALSE
)
SELECT r.scheduled_at, r.trigger_id, r.kind, r.job_id, j.revision, r.scheduled_at
FROM n
CROSS JOIN (
  SELECT 0 AS id
  UNION ALL
  SELECT o.id
  FROM nodes AS o
  WHERE o.state = 'dead'
    AND (o.empty_at IS NULL OR o.empty_at > (SELECT now FROM n) OR (SELECT now FROM n) - o.empty_at >= o.empty_at - o.heartbeat_at OR (SELECT now FROM n) - o.empty_at >= 300000)
) AS gone
CROSS JOIN LATERAL (
  SELECT r.*
  FROM live_runs AS r
  WHERE r.node = gone.id
    AND r.state NOT IN ('retrying', 'waiting_callback')
    AND r.state NOT IN ('running', 'waiting_shards') OFFSET 0
) AS r
CROSS JOIN jobs AS j
WHERE j.id = r.job_id
  AND r.scheduled_at + 0 >= $4
  AND (r.scheduled_at + 0, r.trigger_id, r.kind) > ($6, $7, $8)
  AND j.app_id IN (
  SELECT id
  FROM apps
  WHERE (enabled OR deleted_at IS NOT NULL)
    AND ($5 = 0 OR name IN (SELECT name FROM b))
)
  AND (j.node_labels = '' OR j.deleted_at IS NOT NULL OR j.node_labels IN (SELECT labels FROM b))
  AND EXISTS (SELECT 1 FROM nodes WHERE id = $1 AND state = 'active')
ORDER BY r.scheduled_at + 0, r.trigger_id, r.kind
LIMIT $3
