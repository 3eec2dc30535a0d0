SELECT d.id, d.job_id, d.app_id, d.revision, d.name, d.origin, d.expression, d.dialect, d.timezone,
    d.start_at, d.end_at, d.repeat_count, d.gap, d.overlap, d.misfire_after, d.enabled,
    d.paused, d.pause, d.job_paused, d.error, d.anchor_at, d.jitter, d.fired, d.counted_from,
    d.drift_hour, d.calendar, d.on_excluded, d.node_labels, d.misfire_policy, d.catch_up_window,
    d.attempt_timeout, t.id, t.app_id, t.revision, t.calendar_revision,
    coalesce(t.prev_fire_time, -1), coalesce(t.next_fire_time, -1), coalesce(t.due_at, -1),
    t.misfire_after, coalesce(t.attempt_timeout, -1), t.node_labels, t.ended_at
FROM trigger_clock AS t
JOIN triggers AS d ON d.id = t.id
WHERE t.delayed
  AND t.next_fire_time IS NULL
  AND t.state = 'waiting'
  AND t.ended_at IS NOT NULL
ORDER BY t.id
LIMIT $1
