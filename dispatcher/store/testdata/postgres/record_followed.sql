WITH n AS MATERIALIZED (
  SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint) AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[],
      $9::bigint[], $10::bigint[], $11::bigint[], $12::integer[], $13::text[], $14::text[],
      $15::text[]) AS u(scheduled_at, trigger_id, token, job_id, revision, claimed_at, node,
      started_at, ended_at, http_status, state, class, error)
  CROSS JOIN n
  WHERE (u.scheduled_at = u.scheduled_at + 0) IS NOT FALSE
    AND (u.scheduled_at = u.scheduled_at - 0) IS NOT FALSE
),
k AS MATERIALIZED (
  SELECT token
  FROM claims
  WHERE token = ANY ($1::bigint[])
  ORDER BY token
  FOR KEY SHARE
),
d AS (
  DELETE FROM claims
  WHERE token = ANY ($2::bigint[])
  RETURNING token
),
f AS (SELECT token FROM k UNION ALL SELECT token FROM d), c AS (
  SELECT b.scheduled_at AS of_at, b.trigger_id AS of_trigger, 1 AS of_kind, b.job_id AS of_job,
      b.revision AS of_revision, b.node AS of_node, b.claimed_at AS of_claimed,
      b.started_at AS of_started, b.ended_at AS of_end, 1 AS over, b.http_status AS of_status,
      b.state AS of_state, b.class AS of_class, b.error AS of_error, '' AS of_waited
  FROM b
  WHERE (b.token IN (SELECT token FROM f)) = b.yes
),
e1 AS (
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
-- Instead, if that finds a run which exists
WITH n AS MATERIALIZED (
  SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint) AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[],
      $9::bigint[], $10::bigint[], $11::bigint[], $12::integer[], $13::text[], $14::text[],
      $15::text[]) AS u(scheduled_at, trigger_id, token, job_id, revision, claimed_at, node,
      started_at, ended_at, http_status, state, class, error)
  CROSS JOIN n
  WHERE (u.scheduled_at = u.scheduled_at + 0) IS NOT FALSE
    AND (u.scheduled_at = u.scheduled_at - 0) IS NOT FALSE
),
k AS MATERIALIZED (
  SELECT token
  FROM claims
  WHERE token = ANY ($1::bigint[])
  ORDER BY token
  FOR KEY SHARE
),
d AS (
  DELETE FROM claims
  WHERE token = ANY ($2::bigint[])
  RETURNING token
),
f AS (SELECT token FROM k UNION ALL SELECT token FROM d), c AS (
  SELECT b.scheduled_at AS of_at, b.trigger_id AS of_trigger, 1 AS of_kind, b.job_id AS of_job,
      b.revision AS of_revision, b.node AS of_node, b.claimed_at AS of_claimed,
      b.started_at AS of_started, b.ended_at AS of_end, 1 AS over, b.http_status AS of_status,
      b.state AS of_state, b.class AS of_class, b.error AS of_error, '' AS of_waited
  FROM b
  WHERE (b.token IN (SELECT token FROM f)) = b.yes
),
e1 AS (
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
    WHERE r.scheduled_at = ANY (ARRAY[c.of_at])
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
