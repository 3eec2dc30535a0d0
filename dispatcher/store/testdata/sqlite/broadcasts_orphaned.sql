SELECT DISTINCT r.scheduled_at, r.trigger_id, r.kind % 16
FROM live_runs AS r
WHERE r.kind >= 16
  AND NOT EXISTS (
  SELECT 1
  FROM live_runs AS p
  WHERE p.scheduled_at = r.scheduled_at
    AND p.trigger_id = r.trigger_id
    AND p.kind = r.kind % 16
  LIMIT 1 OFFSET 0
)
LIMIT $1
