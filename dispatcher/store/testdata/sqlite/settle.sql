-- Part 1 of 3, in one transaction
WITH n AS MATERIALIZED (
  SELECT CASE WHEN $3 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE $3 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, CASE WHEN decision = 'fire_all' THEN 1 ELSE 3 END AS kind, 'waiting' AS waiting,
      n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS id, value ->> 1 AS revision, value ->> 2 AS calendars,
        value ->> 3 AS prev, value ->> 4 AS next, value ->> 5 AS upto,
        value ->> 6 AS upto_due, value ->> 7 AS to_at, value ->> 8 AS missed,
        value ->> 9 AS decision, value ->> 10 AS reason, value ->> 11 AS run_at
    FROM jsonb_each($5)
  ) AS u
  CROSS JOIN n
),
c AS (
  SELECT t.id, t.job_id, t.revision, b.run_at, b.kind, b.now, b.next, b.to_at, b.missed, b.decision,
      b.reason
  FROM b
  JOIN triggers AS t ON t.id = b.id
    AND t.state = b.waiting
    AND t.revision = b.revision
    AND t.calendar_revision = b.calendars
    AND t.prev_fire_time IS NOT DISTINCT FROM b.prev
    AND t.next_fire_time = b.next
    AND (t.paused OR t.job_paused) = b.no
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
-- Part 2 of 3, in one transaction
WITH n AS MATERIALIZED (
  SELECT CASE WHEN $3 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE $3 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, CASE WHEN decision = 'fire_all' THEN 1 ELSE 3 END AS kind, 'waiting' AS waiting,
      n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS id, value ->> 1 AS revision, value ->> 2 AS calendars,
        value ->> 3 AS prev, value ->> 4 AS next, value ->> 5 AS upto,
        value ->> 6 AS upto_due, value ->> 7 AS to_at, value ->> 8 AS missed,
        value ->> 9 AS decision, value ->> 10 AS reason, value ->> 11 AS run_at
    FROM jsonb_each($5)
  ) AS u
  CROSS JOIN n
),
c AS (
  SELECT t.id, t.job_id, t.revision, b.run_at, b.kind, b.now, b.next, b.to_at, b.missed, b.decision,
      b.reason
  FROM b
  JOIN triggers AS t ON t.id = b.id
    AND t.state = b.waiting
    AND t.revision = b.revision
    AND t.calendar_revision = b.calendars
    AND t.prev_fire_time IS NOT DISTINCT FROM b.prev
    AND t.next_fire_time = b.next
    AND (t.paused OR t.job_paused) = b.no
    AND t.due_at <= b.now + $4
    AND (t.app_id IN (SELECT id FROM apps WHERE enabled)) = b.yes
    AND EXISTS (SELECT 1 FROM nodes WHERE id = $1 AND state = 'active')
)
INSERT INTO runs (scheduled_at, trigger_id, kind, job_id, revision, node, token, claimed_at,
    attempt, live, state)
SELECT c.run_at, c.id, c.kind, c.job_id, c.revision, $1, $2, c.now, 1, TRUE, 'claimed'
FROM c
WHERE c.run_at IS NOT NULL
ON CONFLICT DO NOTHING
RETURNING scheduled_at, trigger_id, kind, job_id, revision, token, attempt, failures, retry_until
-- Part 3 of 3, in one transaction
WITH n AS MATERIALIZED (
  SELECT CASE WHEN $3 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE $3 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, CASE WHEN decision = 'fire_all' THEN 1 ELSE 3 END AS kind, 'waiting' AS waiting,
      n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS id, value ->> 1 AS revision, value ->> 2 AS calendars,
        value ->> 3 AS prev, value ->> 4 AS next, value ->> 5 AS upto,
        value ->> 6 AS upto_due, value ->> 7 AS to_at, value ->> 8 AS missed,
        value ->> 9 AS decision, value ->> 10 AS reason, value ->> 11 AS run_at
    FROM jsonb_each($5)
  ) AS u
  CROSS JOIN n
)
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
