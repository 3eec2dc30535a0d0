WITH n AS MATERIALIZED (
  SELECT CASE
      WHEN $3::bigint = 0 THEN CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)
      ELSE $3 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($4::bigint[], $5::bigint[], $6::integer[], $7::bigint[]) AS u(scheduled_at,
      trigger_id, kind, waits_for)
  CROSS JOIN n
  WHERE (u.scheduled_at = u.scheduled_at + 0) IS NOT FALSE
    AND (u.scheduled_at = u.scheduled_at - 0) IS NOT FALSE
),
chosen AS MATERIALIZED (
  SELECT r.scheduled_at AS of_at, r.trigger_id AS of_trigger, r.kind AS of_kind, CASE
      WHEN r.node <> 0 AND j.delivery = 'at_most_once' AND j.revision <= abs(r.revision) OR r.node <> 0 AND r.callback IS NOT NULL THEN r.attempt - 1
      ELSE r.attempt END AS over, CASE
      WHEN r.node <> 0 AND j.delivery = 'at_most_once' AND j.revision <= abs(r.revision) OR r.node <> 0 AND r.callback IS NOT NULL THEN 0
      ELSE r.node END AS dead, CASE WHEN r.claimed_at > r.scheduled_at THEN r.claimed_at
      ELSE r.scheduled_at END AS since, (
    SELECT CASE WHEN o.deregistered THEN 'the node stopped' ELSE 'the node died' END
    FROM nodes AS o
    WHERE o.id = r.node
  ) AS why, CASE WHEN j.deleted_at IS NULL THEN j.revision ELSE -j.revision END AS job_revision,
      b.now
  FROM b
  CROSS JOIN LATERAL (
    SELECT r.*
    FROM live_runs AS r
    WHERE r.scheduled_at = ANY (ARRAY[b.scheduled_at])
      AND r.trigger_id = b.trigger_id
      AND r.kind = b.kind
      AND (r.state IN ('running', 'retrying', 'waiting_callback', 'waiting_shards')) = b.no
      AND (r.node = 0 OR r.node IN (SELECT id FROM nodes WHERE state = 'dead'))
    FOR UPDATE SKIP LOCKED
  ) AS r
  JOIN jobs AS j ON j.id = r.job_id
  JOIN apps AS a ON a.id = j.app_id
  WHERE (a.enabled OR a.deleted_at IS NOT NULL)
    AND EXISTS (SELECT 1 FROM nodes WHERE id = $1 AND state = 'active')
  FOR KEY SHARE OF a
),
c AS MATERIALIZED (
  SELECT *
  FROM chosen
  WHERE (of_trigger = of_trigger + 0) IS NOT FALSE
    AND (of_trigger = of_trigger - 0) IS NOT FALSE
),
e1 AS (
  INSERT INTO attempts (scheduled_at, trigger_id, kind, attempt, node, started_at, ended_at,
      http_status, state, class, error)
  SELECT c.of_at, c.of_trigger, c.of_kind, c.over, c.dead, c.since, c.now, 0, 'lost', 'other',
      c.why
  FROM c
  WHERE c.dead > 0
  ON CONFLICT DO NOTHING
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
    claimed_at, TRUE, callback, has_input, waited
