-- Part 1 of 4, in one transaction
WITH n AS MATERIALIZED (
  SELECT CASE WHEN $3 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE $3 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, CASE WHEN decision = 'fire_all' THEN 1 ELSE 3 END AS kind, 'waiting' AS waiting,
      n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS id, value ->> 1 AS revision, value ->> 2 AS calendars,
        value ->> 3 AS prev, value ->> 4 AS next, value ->> 5 AS upto,
        value ->> 6 AS upto_due, value ->> 7 AS job_id, value ->> 8 AS to_at,
        value ->> 9 AS missed, value ->> 10 AS decision, value ->> 11 AS reason,
        value ->> 12 AS run_at
    FROM jsonb_each($5)
  ) AS u
  CROSS JOIN n
),
c AS (
  SELECT t.id, b.job_id, t.app_id, t.revision, b.run_at, b.kind, b.now, b.yes, b.no, b.next,
      b.to_at, b.missed, b.decision, b.reason
  FROM b
  JOIN trigger_clock AS t ON t.id = b.id
    AND t.revision = b.revision
    AND t.calendar_revision = b.calendars
    AND t.prev_fire_time IS NOT DISTINCT FROM b.prev
    AND t.next_fire_time = b.next
    AND (t.off = 0) = b.yes
    AND t.due_at <= b.now + $4
    AND (t.app_id IN (SELECT id FROM apps WHERE enabled)) = b.yes
    AND EXISTS (SELECT 1 FROM nodes WHERE id = $1 AND state = 'active')
)
INSERT INTO misfires (from_at, to_at, trigger_id, job_id, count, decision, reason, catch_up, node,
    decided_at)
SELECT c.next, c.to_at, c.id, c.job_id, c.missed, c.decision, c.reason, c.run_at, $1, c.now
FROM c
WHERE c.decision <> 'fire_all'
ON CONFLICT DO NOTHING
-- Part 2 of 4, in one transaction
WITH n AS MATERIALIZED (
  SELECT CASE WHEN $3 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE $3 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, CASE WHEN decision = 'fire_all' THEN 1 ELSE 3 END AS kind, 'waiting' AS waiting,
      n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS id, value ->> 1 AS revision, value ->> 2 AS calendars,
        value ->> 3 AS prev, value ->> 4 AS next, value ->> 5 AS upto,
        value ->> 6 AS upto_due, value ->> 7 AS job_id, value ->> 8 AS to_at,
        value ->> 9 AS missed, value ->> 10 AS decision, value ->> 11 AS reason,
        value ->> 12 AS run_at
    FROM jsonb_each($5)
  ) AS u
  CROSS JOIN n
),
c AS (
  SELECT t.id, b.job_id, t.app_id, t.revision, b.run_at, b.kind, b.now, b.yes, b.no, b.next,
      b.to_at, b.missed, b.decision, b.reason
  FROM b
  JOIN trigger_clock AS t ON t.id = b.id
    AND t.revision = b.revision
    AND t.calendar_revision = b.calendars
    AND t.prev_fire_time IS NOT DISTINCT FROM b.prev
    AND t.next_fire_time = b.next
    AND (t.off = 0) = b.yes
    AND t.due_at <= b.now + $4
    AND (t.app_id IN (SELECT id FROM apps WHERE enabled)) = b.yes
    AND EXISTS (SELECT 1 FROM nodes WHERE id = $1 AND state = 'active')
)
INSERT INTO pending_ends (ended_at, trigger_id, scheduled_at, kind, job_id, app_id, attempt,
    http_status, state, class, error)
SELECT c.now, c.id, c.next, 0, c.job_id, j.app_id, 0, 0, '', '', ''
FROM c
JOIN jobs AS j ON j.id = c.job_id
  AND j.follows <> 0
WHERE c.decision <> 'fire_all'
  AND (j.follows & 12) <> 0
ON CONFLICT DO NOTHING
-- Part 3 of 4, in one transaction
WITH n AS MATERIALIZED (
  SELECT CASE WHEN $3 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE $3 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, CASE WHEN decision = 'fire_all' THEN 1 ELSE 3 END AS kind, 'waiting' AS waiting,
      n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS id, value ->> 1 AS revision, value ->> 2 AS calendars,
        value ->> 3 AS prev, value ->> 4 AS next, value ->> 5 AS upto,
        value ->> 6 AS upto_due, value ->> 7 AS job_id, value ->> 8 AS to_at,
        value ->> 9 AS missed, value ->> 10 AS decision, value ->> 11 AS reason,
        value ->> 12 AS run_at
    FROM jsonb_each($5)
  ) AS u
  CROSS JOIN n
),
c AS (
  SELECT t.id, b.job_id, t.app_id, t.revision, b.run_at, b.kind, b.now, b.yes, b.no, b.next,
      b.to_at, b.missed, b.decision, b.reason
  FROM b
  JOIN trigger_clock AS t ON t.id = b.id
    AND t.revision = b.revision
    AND t.calendar_revision = b.calendars
    AND t.prev_fire_time IS NOT DISTINCT FROM b.prev
    AND t.next_fire_time = b.next
    AND (t.off = 0) = b.yes
    AND t.due_at <= b.now + $4
    AND (t.app_id IN (SELECT id FROM apps WHERE enabled)) = b.yes
    AND EXISTS (SELECT 1 FROM nodes WHERE id = $1 AND state = 'active')
)
INSERT INTO live_runs (scheduled_at, trigger_id, kind, job_id, app_id, revision, node, token,
    claimed_at, attempt, state)
SELECT c.run_at, c.id, c.kind, c.job_id, c.app_id, c.revision, $1, $2, c.now, 1, 'claimed'
FROM c
WHERE c.run_at IS NOT NULL
ON CONFLICT DO NOTHING
RETURNING scheduled_at, trigger_id, kind, job_id, revision, token, attempt, failures, retry_until,
    claimed_at, TRUE
-- Part 4 of 4, in one transaction
WITH n AS MATERIALIZED (
  SELECT CASE WHEN $3 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE $3 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, CASE WHEN decision = 'fire_all' THEN 1 ELSE 3 END AS kind, 'waiting' AS waiting,
      n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS id, value ->> 1 AS revision, value ->> 2 AS calendars,
        value ->> 3 AS prev, value ->> 4 AS next, value ->> 5 AS upto,
        value ->> 6 AS upto_due, value ->> 7 AS job_id, value ->> 8 AS to_at,
        value ->> 9 AS missed, value ->> 10 AS decision, value ->> 11 AS reason,
        value ->> 12 AS run_at
    FROM jsonb_each($5)
  ) AS u
  CROSS JOIN n
)
UPDATE trigger_clock AS t
SET prev_fire_time = b.next, next_fire_time = b.upto, due_at = b.upto_due, state = CASE
    WHEN b.upto IS NULL AND NOT t.delayed THEN 'complete' ELSE t.state END, ended_at = CASE
    WHEN t.delayed AND b.run_at IS NULL THEN b.now END
FROM b
WHERE t.id = b.id
  AND t.revision = b.revision
  AND t.calendar_revision = b.calendars
  AND t.prev_fire_time IS NOT DISTINCT FROM b.prev
  AND t.next_fire_time = b.next
  AND (t.off = 0) = b.yes
  AND t.due_at <= b.now + $4
  AND (t.app_id IN (SELECT id FROM apps WHERE enabled)) = b.yes
  AND EXISTS (SELECT 1 FROM nodes WHERE id = $1 AND state = 'active')
