WITH n AS MATERIALIZED (
  SELECT CASE
      WHEN $5::bigint = 0 THEN CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)
      ELSE $5 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($8::text[], $9::text[]) AS u(name, labels)
  CROSS JOIN n
),
c AS (
  SELECT r.scheduled_at AS of_at, r.trigger_id AS of_trigger, r.kind AS of_kind, r.attempt AS over,
      j.revision AS job_revision, n.now
  FROM n
  CROSS JOIN runs AS r
  JOIN jobs AS j ON j.id = r.job_id
  LEFT JOIN triggers AS t ON t.id = r.trigger_id
  WHERE r.state = 'retrying'
    AND r.next_attempt_at <= n.now
    AND r.retry_until >= n.now
    AND j.app_id IN (
    SELECT id
    FROM apps
    WHERE enabled
      AND ($7 = 0 OR name IN (SELECT name FROM b))
  )
    AND (j.node_labels = '' OR j.node_labels IN (SELECT labels FROM b))
    AND EXISTS (SELECT 1 FROM nodes WHERE id = $3 AND state = 'active')
    AND (r.scheduled_at >= $1 OR r.scheduled_at > $1)
    AND (r.scheduled_at < $2 OR r.scheduled_at < $2 - 1)
    AND (r.kind = 2 OR j.deleted_at IS NOT NULL OR t.deleted_at IS NOT NULL OR j.enabled AND NOT j.paused AND COALESCE(t.enabled,
        TRUE) AND NOT COALESCE(t.paused, FALSE))
  ORDER BY r.next_attempt_at, r.scheduled_at, r.trigger_id
  LIMIT $6
)
SELECT min(c.of_at), max(c.of_at)
FROM c
WHERE CAST($4 AS bigint) <> 0
