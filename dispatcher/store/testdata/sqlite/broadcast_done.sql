SELECT r.attempt
FROM live_runs AS r
WHERE r.scheduled_at = $1
  AND r.trigger_id = $2
  AND r.kind = $3
  AND r.state = 'waiting_shards'
  AND NOT EXISTS (
  SELECT 1
  FROM live_runs AS x
  WHERE x.scheduled_at = r.scheduled_at
    AND x.trigger_id = r.trigger_id
    AND x.kind >= 16
    AND x.kind % 16 = r.kind
  LIMIT 1 OFFSET 0
)
