-- Part 1 of 5, in one transaction
WITH n AS MATERIALIZED (
  SELECT CASE WHEN $1 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE $1 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (SELECT value ->> 0 AS id FROM jsonb_each($3)) AS u
  CROSS JOIN n
),
c AS (
  SELECT r.scheduled_at AS of_at, r.trigger_id AS of_trigger, r.kind AS of_kind, r.job_id AS of_job,
      r.revision AS of_revision, CASE WHEN r.node > 0 THEN r.node ELSE 0 END AS of_node,
      r.claimed_at AS of_claimed, r.started_at AS of_started, n.now AS of_end,
      r.attempt AS over, 0 AS of_status, 'lost' AS of_state, 'other' AS of_class, CASE
      WHEN o.deregistered THEN 'the node stopped'
      ELSE 'the node died' END || ' when the request may have been sent, and the job wants it at most once' AS of_error,
      r.waited AS of_waited, r.node AS dead, COALESCE(r.started_at, CASE
      WHEN r.claimed_at > r.scheduled_at THEN r.claimed_at ELSE r.scheduled_at END) AS since,
      CASE WHEN o.deregistered THEN 'the node stopped' ELSE 'the node died' END AS why, n.now
  FROM n
  CROSS JOIN nodes AS o
  CROSS JOIN live_runs AS r ON r.node = o.id
    AND r.state NOT IN ('retrying', 'waiting_callback')
    AND r.state = 'running'
  WHERE o.state = 'dead'
    AND (o.empty_at IS NULL OR o.empty_at > (SELECT now FROM n) OR (SELECT now FROM n) - o.empty_at >= o.empty_at - o.heartbeat_at OR (SELECT now FROM n) - o.empty_at >= 300000)
  ORDER BY r.scheduled_at + 0, r.trigger_id
  LIMIT $2
)
INSERT INTO attempts (scheduled_at, trigger_id, kind, attempt, node, started_at, ended_at,
    http_status, state, class, error)
SELECT c.of_at, c.of_trigger, c.of_kind, c.over, c.dead, c.since, c.now, 0, 'lost', 'other', c.why
FROM c
WHERE c.dead > 0
ON CONFLICT DO NOTHING
-- Part 2 of 5, in one transaction
WITH n AS MATERIALIZED (
  SELECT CASE WHEN $1 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE $1 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (SELECT value ->> 0 AS id FROM jsonb_each($3)) AS u
  CROSS JOIN n
),
c AS (
  SELECT r.scheduled_at AS of_at, r.trigger_id AS of_trigger, r.kind AS of_kind, r.job_id AS of_job,
      r.revision AS of_revision, CASE WHEN r.node > 0 THEN r.node ELSE 0 END AS of_node,
      r.claimed_at AS of_claimed, r.started_at AS of_started, n.now AS of_end,
      r.attempt AS over, 0 AS of_status, 'lost' AS of_state, 'other' AS of_class, CASE
      WHEN o.deregistered THEN 'the node stopped'
      ELSE 'the node died' END || ' when the request may have been sent, and the job wants it at most once' AS of_error,
      r.waited AS of_waited, r.node AS dead, COALESCE(r.started_at, CASE
      WHEN r.claimed_at > r.scheduled_at THEN r.claimed_at ELSE r.scheduled_at END) AS since,
      CASE WHEN o.deregistered THEN 'the node stopped' ELSE 'the node died' END AS why, n.now
  FROM n
  CROSS JOIN nodes AS o
  CROSS JOIN live_runs AS r ON r.node = o.id
    AND r.state NOT IN ('retrying', 'waiting_callback')
    AND r.state = 'running'
  WHERE o.state = 'dead'
    AND (o.empty_at IS NULL OR o.empty_at > (SELECT now FROM n) OR (SELECT now FROM n) - o.empty_at >= o.empty_at - o.heartbeat_at OR (SELECT now FROM n) - o.empty_at >= 300000)
  ORDER BY r.scheduled_at + 0, r.trigger_id
  LIMIT $2
)
INSERT INTO pending_ends (ended_at, trigger_id, scheduled_at, kind, job_id, app_id, attempt,
    started_at, http_status, state, class, error)
SELECT c.of_end, c.of_trigger, c.of_at, c.of_kind, c.of_job, j.app_id, c.over, c.of_started,
    c.of_status, coalesce(c.of_state, 'succeeded'), coalesce(c.of_class, ''),
    coalesce(c.of_error, '')
FROM c
JOIN jobs AS j ON j.id = c.of_job
  AND j.follows <> 0
WHERE 1 = 1
  AND c.of_kind < 16
  AND CASE coalesce(c.of_state, 'succeeded')
      WHEN 'succeeded' THEN (j.follows & 1) <> 0 OR (j.follows & 8) <> 0 AND (EXISTS (SELECT 1 FROM pending_ends AS e WHERE e.job_id = j.id) OR EXISTS (
  SELECT 1
  FROM alert_states AS s
  WHERE s.job_id = j.id
    AND s.armed
) OR c.of_kind = 1 AND c.of_started - c.of_at > j.alert_late_after)
    WHEN 'failed' THEN (j.follows & 10) <> 0 WHEN 'timed_out' THEN (j.follows & 10) <> 0
    WHEN 'lost' THEN (j.follows & 10) <> 0 ELSE FALSE END
ON CONFLICT DO NOTHING
-- Part 3 of 5, in one transaction
WITH n AS MATERIALIZED (
  SELECT CASE WHEN $1 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE $1 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (SELECT value ->> 0 AS id FROM jsonb_each($3)) AS u
  CROSS JOIN n
),
c AS (
  SELECT r.scheduled_at AS of_at, r.trigger_id AS of_trigger, r.kind AS of_kind, r.job_id AS of_job,
      r.revision AS of_revision, CASE WHEN r.node > 0 THEN r.node ELSE 0 END AS of_node,
      r.claimed_at AS of_claimed, r.started_at AS of_started, n.now AS of_end,
      r.attempt AS over, 0 AS of_status, 'lost' AS of_state, 'other' AS of_class, CASE
      WHEN o.deregistered THEN 'the node stopped'
      ELSE 'the node died' END || ' when the request may have been sent, and the job wants it at most once' AS of_error,
      r.waited AS of_waited, r.node AS dead, COALESCE(r.started_at, CASE
      WHEN r.claimed_at > r.scheduled_at THEN r.claimed_at ELSE r.scheduled_at END) AS since,
      CASE WHEN o.deregistered THEN 'the node stopped' ELSE 'the node died' END AS why, n.now
  FROM n
  CROSS JOIN nodes AS o
  CROSS JOIN live_runs AS r ON r.node = o.id
    AND r.state NOT IN ('retrying', 'waiting_callback')
    AND r.state = 'running'
  WHERE o.state = 'dead'
    AND (o.empty_at IS NULL OR o.empty_at > (SELECT now FROM n) OR (SELECT now FROM n) - o.empty_at >= o.empty_at - o.heartbeat_at OR (SELECT now FROM n) - o.empty_at >= 300000)
  ORDER BY r.scheduled_at + 0, r.trigger_id
  LIMIT $2
)
INSERT INTO runs (scheduled_at, trigger_id, kind, job_id, revision, node, ended_at, claimed_ms,
    started_ms, attempt, http_status, state, class, error, waited)
SELECT c.of_at, c.of_trigger, c.of_kind, c.of_job, c.of_revision, c.of_node, c.of_end, CASE
    WHEN c.of_claimed BETWEEN c.of_end - 2147483647 AND c.of_end + 2147483647 THEN c.of_end - c.of_claimed END,
    CASE
    WHEN c.of_started BETWEEN c.of_end - 2147483647 AND c.of_end + 2147483647 THEN c.of_end - c.of_started END,
    c.over, c.of_status, NULLIF(c.of_state, 'succeeded'), NULLIF(c.of_class, ''),
    NULLIF(c.of_error, ''), NULLIF(c.of_waited, '')
FROM c
WHERE 1 = 1
ON CONFLICT DO NOTHING
-- Part 4 of 5, in one transaction
WITH n AS MATERIALIZED (
  SELECT CASE WHEN $1 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE $1 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (SELECT value ->> 0 AS id FROM jsonb_each($3)) AS u
  CROSS JOIN n
),
c AS (
  SELECT r.scheduled_at AS of_at, r.trigger_id AS of_trigger, r.kind AS of_kind, r.job_id AS of_job,
      r.revision AS of_revision, CASE WHEN r.node > 0 THEN r.node ELSE 0 END AS of_node,
      r.claimed_at AS of_claimed, r.started_at AS of_started, n.now AS of_end,
      r.attempt AS over, 0 AS of_status, 'lost' AS of_state, 'other' AS of_class, CASE
      WHEN o.deregistered THEN 'the node stopped'
      ELSE 'the node died' END || ' when the request may have been sent, and the job wants it at most once' AS of_error,
      r.waited AS of_waited, r.node AS dead, COALESCE(r.started_at, CASE
      WHEN r.claimed_at > r.scheduled_at THEN r.claimed_at ELSE r.scheduled_at END) AS since,
      CASE WHEN o.deregistered THEN 'the node stopped' ELSE 'the node died' END AS why, n.now
  FROM n
  CROSS JOIN nodes AS o
  CROSS JOIN live_runs AS r ON r.node = o.id
    AND r.state NOT IN ('retrying', 'waiting_callback')
    AND r.state = 'running'
  WHERE o.state = 'dead'
    AND (o.empty_at IS NULL OR o.empty_at > (SELECT now FROM n) OR (SELECT now FROM n) - o.empty_at >= o.empty_at - o.heartbeat_at OR (SELECT now FROM n) - o.empty_at >= 300000)
  ORDER BY r.scheduled_at + 0, r.trigger_id
  LIMIT $2
)
UPDATE trigger_clock AS t
SET ended_at = c.of_end
FROM c
WHERE t.id = c.of_trigger
  AND t.delayed
  AND t.prev_fire_time = c.of_at
  AND c.of_kind IN (1, 3)
  AND 1 = 1
-- Part 5 of 5, in one transaction
WITH n AS MATERIALIZED (
  SELECT CASE WHEN $1 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE $1 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (SELECT value ->> 0 AS id FROM jsonb_each($3)) AS u
  CROSS JOIN n
),
c AS (
  SELECT r.scheduled_at AS of_at, r.trigger_id AS of_trigger, r.kind AS of_kind, r.job_id AS of_job,
      r.revision AS of_revision, CASE WHEN r.node > 0 THEN r.node ELSE 0 END AS of_node,
      r.claimed_at AS of_claimed, r.started_at AS of_started, n.now AS of_end,
      r.attempt AS over, 0 AS of_status, 'lost' AS of_state, 'other' AS of_class, CASE
      WHEN o.deregistered THEN 'the node stopped'
      ELSE 'the node died' END || ' when the request may have been sent, and the job wants it at most once' AS of_error,
      r.waited AS of_waited, r.node AS dead, COALESCE(r.started_at, CASE
      WHEN r.claimed_at > r.scheduled_at THEN r.claimed_at ELSE r.scheduled_at END) AS since,
      CASE WHEN o.deregistered THEN 'the node stopped' ELSE 'the node died' END AS why, n.now
  FROM n
  CROSS JOIN nodes AS o
  CROSS JOIN live_runs AS r ON r.node = o.id
    AND r.state NOT IN ('retrying', 'waiting_callback')
    AND r.state = 'running'
  WHERE o.state = 'dead'
    AND (o.empty_at IS NULL OR o.empty_at > (SELECT now FROM n) OR (SELECT now FROM n) - o.empty_at >= o.empty_at - o.heartbeat_at OR (SELECT now FROM n) - o.empty_at >= 300000)
  ORDER BY r.scheduled_at + 0, r.trigger_id
  LIMIT $2
)
DELETE FROM live_runs
WHERE (scheduled_at, trigger_id, kind) IN (SELECT c.of_at, c.of_trigger,
    c.of_kind FROM c WHERE 1 = 1)
