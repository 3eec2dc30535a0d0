WITH me AS (
  UPDATE nodes
  SET heartbeat_at = CASE
      WHEN CAST($7 AS bigint) = 0 THEN CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)
      ELSE $7 END, in_flight = $2, fires = $3, lag = $4, clock_offset = $5, long_since = $6,
      certificate_ends_at = $8, saturated = $9, heartbeats = heartbeats + 1
  WHERE id = $1
    AND state <> 'dead'
  RETURNING id, name, version, state, apps, labels, started_at, heartbeat_at, heartbeat_interval,
      in_flight, fires, lag, saturated, clock_offset, certificate_ends_at, long_since,
      api_addresses, deregistered, zones, heartbeats, paused_by_rollback, EXISTS (
    SELECT 1
    FROM installation
    WHERE rolled_back_at IS NOT NULL
  ) AS rolled_back, (SELECT rollback_settled_at FROM installation) AS settled
)
SELECT *
FROM me
UNION ALL
SELECT id, name, version, state, apps, labels, started_at, heartbeat_at, heartbeat_interval,
    in_flight, fires, lag, saturated, clock_offset, certificate_ends_at, long_since,
    api_addresses, deregistered, zones, 0, FALSE, FALSE, 0
FROM nodes
WHERE state <> 'dead'
  AND id <> $1
  AND EXISTS (SELECT 1 FROM me)
