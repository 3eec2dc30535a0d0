-- Part 1 of 2, in one transaction
WITH n AS MATERIALIZED (
  SELECT CASE WHEN $3 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE $3 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS scheduled_at, value ->> 1 AS trigger_id, value ->> 2 AS kind,
        value ->> 3 AS waits_for
    FROM jsonb_each($4)
  ) AS u
  CROSS JOIN n
),
c AS (
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
  JOIN live_runs AS r ON r.scheduled_at = b.scheduled_at
    AND r.trigger_id = b.trigger_id
    AND r.kind = b.kind
    AND (r.state IN ('running', 'retrying', 'waiting_callback', 'waiting_shards')) = b.no
    AND (r.node = 0 OR r.node IN (SELECT id FROM nodes WHERE state = 'dead'))
  JOIN jobs AS j ON j.id = r.job_id
  JOIN apps AS a ON a.id = j.app_id
  WHERE (a.enabled OR a.deleted_at IS NOT NULL)
    AND EXISTS (SELECT 1 FROM nodes WHERE id = $1 AND state = 'active')
)
INSERT INTO attempts (scheduled_at, trigger_id, kind, attempt, node, started_at, ended_at,
    http_status, state, class, error)
SELECT c.of_at, c.of_trigger, c.of_kind, c.over, c.dead, c.since, c.now, 0, 'lost', 'other', c.why
FROM c
WHERE c.dead > 0
ON CONFLICT DO NOTHING
-- Part 2 of 2, in one transaction
WITH n AS MATERIALIZED (
  SELECT CASE WHEN $3 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE $3 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS scheduled_at, value ->> 1 AS trigger_id, value ->> 2 AS kind,
        value ->> 3 AS waits_for
    FROM jsonb_each($4)
  ) AS u
  CROSS JOIN n
),
c AS (
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
  JOIN live_runs AS r ON r.scheduled_at = b.scheduled_at
    AND r.trigger_id = b.trigger_id
    AND r.kind = b.kind
    AND (r.state IN ('running', 'retrying', 'waiting_callback', 'waiting_shards')) = b.no
    AND (r.node = 0 OR r.node IN (SELECT id FROM nodes WHERE state = 'dead'))
  JOIN jobs AS j ON j.id = r.job_id
  JOIN apps AS a ON a.id = j.app_id
  WHERE (a.enabled OR a.deleted_at IS NOT NULL)
    AND EXISTS (SELECT 1 FROM nodes WHERE id = $1 AND state = 'active')
)
UPDATE live_runs AS r
SET node = $1, token = $2, revision = c.job_revision, claimed_at = c.now, started_at = NULL,
    attempt = c.over + 1, state = 'claimed', next_attempt_at = NULL, waits_for = 0,
    http_status = 0, class = '', error = ''
FROM c
WHERE r.scheduled_at = c.of_at
  AND r.trigger_id = c.of_trigger
  AND r.kind = c.of_kind
RETURNING scheduled_at, trigger_id, kind, job_id, revision, token, attempt, failures, retry_until,
    claimed_at, TRUE, callback, has_input, waited
