WITH n AS MATERIALIZED (
  SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint) AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($1::bigint[]) AS u(id)
  CROSS JOIN n
  WHERE (u.id = u.id + 0) IS NOT FALSE
    AND (u.id = u.id - 0) IS NOT FALSE
)
SELECT t.id, t.job_id, t.app_id, t.revision, t.name, t.origin, t.expression, t.dialect, t.timezone,
    t.start_at, t.end_at, t.repeat_count, t.gap, t.overlap, t.misfire_after, t.enabled,
    t.paused, t.pause, t.job_paused, t.error, t.anchor_at, t.jitter, t.fired, t.counted_from,
    t.drift_hour, t.calendar, t.on_excluded, t.node_labels, t.misfire_policy, t.catch_up_window,
    t.attempt_timeout
FROM b
JOIN triggers AS t ON t.id = b.id
WHERE (t.deleted_at IS NULL) = b.yes
