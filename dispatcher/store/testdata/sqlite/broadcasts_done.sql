SELECT r.scheduled_at, r.trigger_id, r.kind
FROM live_runs AS r
WHERE r.state = 'waiting_shards'
  AND NOT EXISTS (
  SELECT 1
  FROM live_runs AS x
  WHERE x.scheduled_at = r.scheduled_at
    AND x.trigger_id = r.trigger_id
    AND x.kind >= 16
    AND x.kind % 16 = r.kind
  LIMIT 1 OFFSET 0
)
ORDER BY r.scheduled_at, r.trigger_id, r.kind
LIMIT $1
