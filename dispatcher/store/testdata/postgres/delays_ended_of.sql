WITH n AS MATERIALIZED (
  SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint) AS now
),
b AS MATERIALIZED (
  SELECT u.*, 'waiting' AS waiting, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($2::bigint[]) AS u(id)
  CROSS JOIN n
)
SELECT t.id, t.job_id, t.revision, t.name, t.expression, t.dialect, t.timezone, t.start_at,
    t.end_at, t.repeat_count, t.gap, t.overlap, t.misfire_after, t.enabled, t.paused,
    t.job_paused, t.state, t.error, t.prev_fire_time, t.next_fire_time, t.due_at, t.anchor_at,
    t.jitter, t.fired, t.drift_hour, t.calendar, t.on_excluded, t.calendar_revision, t.app_id,
    t.node_labels, coalesce(t.misfire_policy, 'fire_once'), t.catch_up_window,
    t.attempt_timeout, coalesce(r.ended_at, m.decided_at)
FROM b
JOIN triggers AS t ON t.id = b.id
JOIN jobs AS j ON j.id = t.job_id
LEFT JOIN runs AS r ON r.scheduled_at = t.prev_fire_time
  AND r.trigger_id = t.id
  AND r.kind IN (1, 3)
LEFT JOIN misfires AS m ON m.from_at = t.prev_fire_time
  AND m.trigger_id = t.id
  AND m.decision = 'skip'
  AND m.node <> 0
WHERE j.enabled
  AND j.deleted_at IS NULL
  AND (NOT r.live AND r.ended_at IS NOT NULL OR m.decided_at IS NOT NULL)
  AND t.delayed = b.yes
  AND (t.next_fire_time IS NULL) = b.yes
  AND t.state = b.waiting
  AND t.enabled = b.yes
  AND (t.deleted_at IS NULL) = b.yes
ORDER BY t.id
LIMIT $1
