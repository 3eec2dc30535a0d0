-- Part 1 of 3, in one transaction
WITH n AS MATERIALIZED (
  SELECT CASE WHEN $3 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE $3 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, next AS run_at, 1 AS kind, 'waiting' AS waiting, n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS id, value ->> 1 AS revision, value ->> 2 AS calendars,
        value ->> 3 AS prev, value ->> 4 AS next, value ->> 5 AS upto,
        value ->> 6 AS upto_due, value ->> 7 AS job_id, value ->> 8 AS live
    FROM jsonb_each($5)
  ) AS u
  CROSS JOIN n
),
c AS (
  SELECT t.id, b.job_id, t.app_id, t.revision, b.run_at, b.kind, b.now, b.yes, b.no, b.live
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
INSERT INTO claims (token, node, claimed_at, fires)
SELECT $2, $1, min(c.now), json_group_array(json_array(c.id, c.run_at, c.job_id, c.revision))
FROM c
WHERE c.live = c.no HAVING count(*) > 0
-- Part 2 of 3, in one transaction
SELECT f.scheduled_at, f.trigger_id, 1, f.job_id, f.revision, f.token, 1, 0, CAST(NULL AS BIGINT),
    f.claimed_at, FALSE
FROM (
  SELECT c.token, c.node, c.claimed_at, u.value ->> 0 AS trigger_id, u.value ->> 1 AS scheduled_at,
      u.value ->> 2 AS job_id, u.value ->> 3 AS revision
  FROM claims AS c
  CROSS JOIN jsonb_each(c.fires) AS u
) AS f
WHERE f.token = $2
-- Part 3 of 3, in one transaction
WITH n AS MATERIALIZED (
  SELECT CASE WHEN $3 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE $3 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, next AS run_at, 1 AS kind, 'waiting' AS waiting, n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS id, value ->> 1 AS revision, value ->> 2 AS calendars,
        value ->> 3 AS prev, value ->> 4 AS next, value ->> 5 AS upto,
        value ->> 6 AS upto_due, value ->> 7 AS job_id, value ->> 8 AS live
    FROM jsonb_each($5)
  ) AS u
  CROSS JOIN n
)
UPDATE trigger_clock AS t
SET prev_fire_time = b.next, next_fire_time = b.upto, due_at = b.upto_due, state = CASE
    WHEN b.upto IS NULL AND NOT t.delayed THEN 'complete' ELSE t.state END, ended_at = NULL
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
