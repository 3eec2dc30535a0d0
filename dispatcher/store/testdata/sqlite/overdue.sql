WITH n AS MATERIALIZED (
  SELECT CASE WHEN $2 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE $2 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (SELECT value ->> 0 AS name FROM jsonb_each($7)) AS u
  CROSS JOIN n
)
SELECT t.id, t.job_id, t.revision, t.name, t.expression, t.dialect, t.timezone, t.start_at,
    t.end_at, t.repeat_count, t.gap, t.overlap, t.misfire_after, t.enabled, t.paused,
    t.job_paused, t.state, t.error, t.prev_fire_time, t.next_fire_time, t.due_at, t.anchor_at,
    t.jitter, t.fired, t.drift_hour, t.calendar, t.on_excluded, t.calendar_revision, t.app_id,
    t.node_labels, coalesce(t.misfire_policy, 'fire_once'), t.catch_up_window, t.attempt_timeout
FROM triggers AS t
WHERE t.state = 'waiting'
  AND NOT t.paused
  AND NOT t.job_paused
  AND t.due_at IS NOT NULL
  AND t.due_at <= $1
  AND (t.due_at, t.id) > ($3, $4)
  AND (t.app_id IN (
  SELECT id
  FROM apps
  WHERE enabled
    AND ($6 = 0 OR name IN (SELECT name FROM b))
)) = TRUE
  AND t.due_at + t.misfire_after < (SELECT now FROM n)
ORDER BY t.due_at, t.id
LIMIT $5
