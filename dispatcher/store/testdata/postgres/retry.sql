WITH n AS MATERIALIZED (
  SELECT CASE
      WHEN $3::bigint = 0 THEN CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)
      ELSE $3 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($6::text[], $7::text[]) AS u(name, labels)
  CROSS JOIN n
  WHERE (u.name = ANY (ARRAY[u.name])) IS NOT FALSE
    AND (u.name = ANY (ARRAY[u.name, u.name])) IS NOT FALSE
),
chosen AS MATERIALIZED (
  SELECT r.scheduled_at AS of_at, r.trigger_id AS of_trigger, r.kind AS of_kind, r.attempt AS over,
      j.revision AS job_revision, n.now
  FROM n
  CROSS JOIN live_runs AS r
  JOIN jobs AS j ON j.id = r.job_id
  LEFT JOIN triggers AS t ON t.id = r.trigger_id
  WHERE r.state = 'retrying'
    AND r.waits_for = 0
    AND r.next_attempt_at <= (SELECT now FROM n)
    AND r.retry_until >= n.now
    AND j.app_id IN (
    SELECT id
    FROM apps
    WHERE enabled
      AND ($5 = 0 OR name IN (SELECT name FROM b))
  )
    AND (j.node_labels = '' OR j.node_labels IN (SELECT labels FROM b))
    AND EXISTS (SELECT 1 FROM nodes WHERE id = $1 AND state = 'active')
    AND (r.kind = 2 OR j.deleted_at IS NOT NULL OR t.deleted_at IS NOT NULL OR j.enabled AND NOT j.paused AND COALESCE(t.enabled,
        TRUE) AND NOT COALESCE(t.paused, FALSE))
  ORDER BY r.next_attempt_at, r.scheduled_at, r.trigger_id
  LIMIT $4
  FOR UPDATE OF r SKIP LOCKED
),
c AS MATERIALIZED (
  SELECT *
  FROM chosen
  WHERE (of_trigger = ANY (ARRAY[of_trigger])) IS NOT FALSE
    AND (of_trigger = ANY (ARRAY[of_trigger, of_trigger])) IS NOT FALSE
)
UPDATE live_runs AS r
SET node = $1, token = $2, revision = c.job_revision, claimed_at = c.now, started_at = NULL,
    attempt = c.over + 1, state = 'claimed', next_attempt_at = NULL, waits_for = 0,
    http_status = 0, class = '', error = ''
FROM c
WHERE r.scheduled_at = ANY (ARRAY[c.of_at])
  AND r.trigger_id = c.of_trigger
  AND r.kind = c.of_kind
RETURNING scheduled_at, trigger_id, kind, job_id, revision, token, attempt, failures, retry_until,
    claimed_at, TRUE
