WITH n AS MATERIALIZED (
  SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint) AS now
),
b AS MATERIALIZED (
  SELECT u.*, 'waiting' AS waiting, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
      $7::bigint[]) AS u(id, revision, calendars, prev, anchor, next, due)
  CROSS JOIN n
  WHERE (u.id = u.id + 0) IS NOT FALSE
    AND (u.id = u.id - 0) IS NOT FALSE
),
c AS (
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
  RETURNING t.id, b.anchor
)
UPDATE triggers AS d
SET anchor_at = c.anchor, fired = d.fired + 1
FROM c
WHERE d.id = c.id
