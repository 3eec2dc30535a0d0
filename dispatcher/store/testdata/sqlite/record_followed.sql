-- Part 1 of 3, in one transaction
WITH n AS MATERIALIZED (
  SELECT CASE WHEN 0 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE 0 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS scheduled_at, value ->> 1 AS trigger_id, value ->> 2 AS token,
        value ->> 3 AS job_id, value ->> 4 AS revision, value ->> 5 AS claimed_at,
        value ->> 6 AS node, value ->> 7 AS started_at, value ->> 8 AS ended_at,
        value ->> 9 AS http_status, value ->> 10 AS state, value ->> 11 AS class,
        value ->> 12 AS error
    FROM jsonb_each($3)
  ) AS u
  CROSS JOIN n
),
f AS (SELECT token FROM claims), c AS (
  SELECT b.scheduled_at AS of_at, b.trigger_id AS of_trigger, 1 AS of_kind, b.job_id AS of_job,
      b.revision AS of_revision, b.node AS of_node, b.claimed_at AS of_claimed,
      b.started_at AS of_started, b.ended_at AS of_end, 1 AS over, b.http_status AS of_status,
      b.state AS of_state, b.class AS of_class, b.error AS of_error, '' AS of_waited
  FROM b
  WHERE (b.token IN (SELECT token FROM f)) = b.yes
)
INSERT INTO pending_ends (ended_at, trigger_id, scheduled_at, kind, job_id, app_id, attempt,
    started_at, http_status, state, class, error)
SELECT c.of_end, c.of_trigger, c.of_at, c.of_kind, c.of_job, j.app_id, c.over, c.of_started,
    c.of_status, coalesce(c.of_state, 'succeeded'), coalesce(c.of_class, ''),
    coalesce(c.of_error, '')
FROM c
JOIN jobs AS j ON j.id = c.of_job
  AND j.follows <> 0
WHERE NOT EXISTS (
  SELECT 1
  FROM runs AS r
  WHERE r.scheduled_at = c.of_at
    AND r.trigger_id = c.of_trigger
    AND r.kind = c.of_kind
)
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
-- Part 2 of 3, in one transaction
WITH n AS MATERIALIZED (
  SELECT CASE WHEN 0 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE 0 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS scheduled_at, value ->> 1 AS trigger_id, value ->> 2 AS token,
        value ->> 3 AS job_id, value ->> 4 AS revision, value ->> 5 AS claimed_at,
        value ->> 6 AS node, value ->> 7 AS started_at, value ->> 8 AS ended_at,
        value ->> 9 AS http_status, value ->> 10 AS state, value ->> 11 AS class,
        value ->> 12 AS error
    FROM jsonb_each($3)
  ) AS u
  CROSS JOIN n
),
f AS (SELECT token FROM claims), c AS (
  SELECT b.scheduled_at AS of_at, b.trigger_id AS of_trigger, 1 AS of_kind, b.job_id AS of_job,
      b.revision AS of_revision, b.node AS of_node, b.claimed_at AS of_claimed,
      b.started_at AS of_started, b.ended_at AS of_end, 1 AS over, b.http_status AS of_status,
      b.state AS of_state, b.class AS of_class, b.error AS of_error, '' AS of_waited
  FROM b
  WHERE (b.token IN (SELECT token FROM f)) = b.yes
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
-- Part 3 of 3, in one transaction
DELETE FROM claims
WHERE token IN (SELECT value ->> 0 FROM jsonb_each($2))
