-- Part 1 of 2, in one transaction
WITH n AS MATERIALIZED (
  SELECT CASE WHEN 0 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE 0 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, 'waiting' AS waiting, n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS id, value ->> 1 AS revision, value ->> 2 AS calendars,
        value ->> 3 AS prev, value ->> 4 AS anchor, value ->> 5 AS next, value ->> 6 AS due
    FROM jsonb_each($1)
  ) AS u
  CROSS JOIN n
),
c AS (
  SELECT t.id, b.anchor
  FROM b
  JOIN trigger_clock AS t ON t.id = b.id
    AND t.state = b.waiting
    AND t.revision = b.revision
    AND t.calendar_revision = b.calendars
    AND t.prev_fire_time = b.prev
    AND (t.next_fire_time IS NULL) = b.yes
    AND t.delayed = b.yes
)
UPDATE triggers AS d
SET anchor_at = c.anchor, fired = d.fired + 1
FROM c
WHERE d.id = c.id
-- Part 2 of 2, in one transaction
WITH n AS MATERIALIZED (
  SELECT CASE WHEN 0 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE 0 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, 'waiting' AS waiting, n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS id, value ->> 1 AS revision, value ->> 2 AS calendars,
        value ->> 3 AS prev, value ->> 4 AS anchor, value ->> 5 AS next, value ->> 6 AS due
    FROM jsonb_each($1)
  ) AS u
  CROSS JOIN n
)
UPDATE trigger_clock AS t
SET next_fire_time = b.next, due_at = b.due, ended_at = NULL, state = CASE
    WHEN b.next IS NULL THEN 'complete' ELSE t.state END
FROM b
WHERE t.id = b.id
  AND t.state = b.waiting
  AND t.revision = b.revision
  AND t.calendar_revision = b.calendars
  AND t.prev_fire_time = b.prev
  AND (t.next_fire_time IS NULL) = b.yes
  AND t.delayed = b.yes
