WITH n AS MATERIALIZED (
  SELECT CASE WHEN $2 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE $2 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS name, value ->> 1 AS labels, value ->> 2 AS app, value ->> 3 AS after_due,
        value ->> 4 AS after_at, value ->> 5 AS after_trigger, value ->> 6 AS after_kind
    FROM jsonb_each($6)
  ) AS u
  CROSS JOIN n
)
SELECT r.scheduled_at, r.trigger_id, r.kind, r.job_id, j.revision, r.next_attempt_at, r.app_id,
    FALSE
FROM n
CROSS JOIN live_runs AS r
CROSS JOIN jobs AS j
LEFT JOIN triggers AS t ON t.id = r.trigger_id
WHERE j.id = r.job_id
  AND r.state IN ('retrying', 'waiting_callback')
  AND r.waits_for = 0
  AND r.next_attempt_at <= (SELECT now FROM n)
  AND (r.retry_until >= n.now OR r.attempt = 0 OR r.state = 'waiting_callback')
  AND r.next_attempt_at >= $4
  AND j.app_id IN (
  SELECT a.id
  FROM apps AS a
  WHERE (a.enabled OR a.deleted_at IS NOT NULL)
    AND ($5 = 0 OR a.name IN (SELECT name FROM b))
)
  AND (j.node_labels = '' OR j.deleted_at IS NOT NULL OR j.node_labels IN (SELECT labels FROM b))
  AND EXISTS (SELECT 1 FROM nodes WHERE id = $1 AND state = 'active')
  AND (r.kind % 16 NOT IN (1,
      3) OR r.state = 'waiting_callback' OR j.deleted_at IS NOT NULL OR t.deleted_at IS NOT NULL OR j.enabled AND NOT j.paused AND NOT j.app_paused AND COALESCE(t.enabled,
      TRUE) AND NOT COALESCE(t.paused, FALSE))
ORDER BY r.next_attempt_at
LIMIT $3
