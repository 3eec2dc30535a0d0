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
