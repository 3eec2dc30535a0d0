-- Part 1 of 2, in one transaction
WITH n AS MATERIALIZED (
  SELECT CASE WHEN $3 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE $3 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (SELECT value ->> 0 AS id FROM jsonb_each($5)) AS u
  CROSS JOIN n
),
c AS (
  SELECT r.scheduled_at AS of_at, r.trigger_id AS of_trigger, r.kind AS of_kind, r.attempt AS over,
      r.node AS dead, COALESCE(r.started_at, r.claimed_at, r.scheduled_at) AS since,
      'the database lost commits' AS why, n.now
  FROM n
  CROSS JOIN installation AS i
  JOIN runs AS r ON r.live
    AND r.scheduled_at <= i.rolled_back_at
  WHERE i.rollback_choice = 'skip'
  ORDER BY r.scheduled_at, r.trigger_id
  LIMIT $4
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
  FROM (SELECT value ->> 0 AS id FROM jsonb_each($5)) AS u
  CROSS JOIN n
),
c AS (
  SELECT r.scheduled_at AS of_at, r.trigger_id AS of_trigger, r.kind AS of_kind, r.attempt AS over,
      r.node AS dead, COALESCE(r.started_at, r.claimed_at, r.scheduled_at) AS since,
      'the database lost commits' AS why, n.now
  FROM n
  CROSS JOIN installation AS i
  JOIN runs AS r ON r.live
    AND r.scheduled_at <= i.rolled_back_at
  WHERE i.rollback_choice = 'skip'
  ORDER BY r.scheduled_at, r.trigger_id
  LIMIT $4
)
UPDATE runs AS r
SET live = FALSE, state = 'lost', token = 0, ended_at = c.now, next_attempt_at = NULL,
    class = 'other',
    error = 'the database lost commits, and an operator chose to skip what was under way'
FROM c
WHERE r.scheduled_at = c.of_at
  AND r.trigger_id = c.of_trigger
  AND r.kind = c.of_kind
  AND r.live
  AND (r.scheduled_at >= $1 OR r.scheduled_at > $1)
  AND (r.scheduled_at < $2 OR r.scheduled_at < $2 - 1)
RETURNING scheduled_at, trigger_id, kind, job_id, revision, token, attempt, failures, retry_until
