WITH n AS MATERIALIZED (
  SELECT CASE
      WHEN $1::bigint = 0 THEN CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)
      ELSE $1 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($10::bigint[], $11::text[]) AS u(app, labels)
  CROSS JOIN n
  WHERE (u.app = u.app + 0) IS NOT FALSE
    AND (u.app = u.app - 0) IS NOT FALSE
)
SELECT t.id, t.app_id, t.revision, t.calendar_revision, coalesce(t.prev_fire_time, -1),
    coalesce(t.next_fire_time, -1), coalesce(t.due_at, -1), t.misfire_after,
    coalesce(t.attempt_timeout, -1), t.node_labels
FROM trigger_clock AS t
WHERE t.off = 0
  AND t.due_at IS NOT NULL
  AND t.due_at <= $2
  AND (t.due_at, t.id) > ($3, $4)
  AND t.id >= $6
  AND t.id <= $7
  AND ($8 = 0 OR t.app_id IN (SELECT app FROM b))
  AND ($9 = 0 OR t.node_labels IN (SELECT labels FROM b))
  AND t.app_id NOT IN (
  SELECT id
  FROM apps
  WHERE switched_to IS NOT NULL
    AND NOT enabled
)
  AND t.misfire_after < (SELECT now FROM n) - t.due_at
ORDER BY t.due_at, t.id
LIMIT $5
