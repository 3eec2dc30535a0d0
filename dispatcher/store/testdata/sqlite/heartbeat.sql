UPDATE nodes
SET heartbeat_at = $6, in_flight = $2, fires = $3, lag = $4, clock_offset = $5, long_since = $7,
    heartbeats = heartbeats + 1
WHERE id = $1
  AND state <> 'dead'
RETURNING id, name, version, state, apps, labels, started_at, heartbeat_at, in_flight, fires, lag,
    clock_offset, long_since, heartbeats, paused_by_rollback, EXISTS (
  SELECT 1
  FROM installation
  WHERE rolled_back_at IS NOT NULL
),
(SELECT rollback_settled_at FROM installation)
