WITH n AS MATERIALIZED (
  SELECT CASE
      WHEN $3::bigint = 0 THEN CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)
      ELSE $3 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, next AS run_at, 1 AS kind, 'waiting' AS waiting, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[],
      $11::bigint[]) AS u(id, revision, calendars, prev, next, upto, upto_due)
  CROSS JOIN n
),
c AS (
  UPDATE triggers AS t
  SET prev_fire_time = b.next, next_fire_time = b.upto, due_at = b.upto_due, state = CASE
      WHEN b.upto IS NULL AND NOT t.delayed THEN 'complete' ELSE t.state END
  FROM b
  WHERE t.id = b.id
    AND t.state = b.waiting
    AND t.revision = b.revision
    AND t.calendar_revision = b.calendars
    AND t.prev_fire_time IS NOT DISTINCT FROM b.prev
    AND t.next_fire_time = b.next
    AND (t.paused OR t.job_paused) = b.no
    AND t.due_at <= b.now + $4
    AND (t.app_id IN (SELECT id FROM apps WHERE enabled)) = b.yes
    AND EXISTS (SELECT 1 FROM nodes WHERE id = $1 AND state = 'active')
  RETURNING t.id, t.job_id, t.revision, b.run_at, b.kind, b.now
)
INSERT INTO runs (scheduled_at, trigger_id, kind, job_id, revision, node, token, claimed_at,
    attempt, live, state)
SELECT c.run_at, c.id, c.kind, c.job_id, c.revision, $1, $2, c.now, 1, TRUE, 'claimed'
FROM c
WHERE c.run_at IS NOT NULL
RETURNING scheduled_at, trigger_id, kind, job_id, revision, token, attempt, failures, retry_until
-- Instead, if that finds a run which exists
WITH n AS MATERIALIZED (
  SELECT CASE
      WHEN $3::bigint = 0 THEN CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)
      ELSE $3 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, next AS run_at, 1 AS kind, 'waiting' AS waiting, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[],
      $11::bigint[]) AS u(id, revision, calendars, prev, next, upto, upto_due)
  CROSS JOIN n
),
c AS (
  UPDATE triggers AS t
  SET prev_fire_time = b.next, next_fire_time = b.upto, due_at = b.upto_due, state = CASE
      WHEN b.upto IS NULL AND NOT t.delayed THEN 'complete' ELSE t.state END
  FROM b
  WHERE t.id = b.id
    AND t.state = b.waiting
    AND t.revision = b.revision
    AND t.calendar_revision = b.calendars
    AND t.prev_fire_time IS NOT DISTINCT FROM b.prev
    AND t.next_fire_time = b.next
    AND (t.paused OR t.job_paused) = b.no
    AND t.due_at <= b.now + $4
    AND (t.app_id IN (SELECT id FROM apps WHERE enabled)) = b.yes
    AND EXISTS (SELECT 1 FROM nodes WHERE id = $1 AND state = 'active')
  RETURNING t.id, t.job_id, t.revision, b.run_at, b.kind, b.now
)
INSERT INTO runs (scheduled_at, trigger_id, kind, job_id, revision, node, token, claimed_at,
    attempt, live, state)
SELECT c.run_at, c.id, c.kind, c.job_id, c.revision, $1, $2, c.now, 1, TRUE, 'claimed'
FROM c
WHERE c.run_at IS NOT NULL
ON CONFLICT DO NOTHING
RETURNING scheduled_at, trigger_id, kind, job_id, revision, token, attempt, failures, retry_until
