WITH n AS MATERIALIZED (
  SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint) AS now
),
b AS MATERIALIZED (
  SELECT u.*, 'waiting' AS waiting, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
      $7::bigint[]) AS u(id, revision, calendars, prev, anchor, next, due)
  CROSS JOIN n
)
UPDATE triggers AS t
SET anchor_at = b.anchor, next_fire_time = b.next, due_at = b.due, fired = t.fired + 1, state =
    CASE WHEN b.next IS NULL THEN 'complete' ELSE t.state END
FROM b
WHERE t.id = b.id
  AND t.state = b.waiting
  AND t.revision = b.revision
  AND t.calendar_revision = b.calendars
  AND t.prev_fire_time = b.prev
  AND (t.next_fire_time IS NULL) = b.yes
  AND t.delayed = b.yes
