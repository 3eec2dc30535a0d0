-- Part 1 of 4, in one transaction
WITH n AS MATERIALIZED (
  SELECT CASE WHEN $1 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE $1 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (SELECT value ->> 0 AS id FROM jsonb_each($3)) AS u
  CROSS JOIN n
),
c AS (
  SELECT r.scheduled_at AS of_at, r.trigger_id AS of_trigger, r.kind AS of_kind, r.job_id AS of_job,
      r.revision AS of_revision, CASE WHEN r.node > 0 THEN r.node ELSE 0 END AS of_node,
      r.claimed_at AS of_claimed, r.started_at AS of_started, n.now AS of_end,
      r.attempt AS over, r.http_status AS of_status, 'lost' AS of_state, 'other' AS of_class,
      'the database lost commits, and an operator chose to skip what was under way' AS of_error,
      r.waited AS of_waited, r.node AS dead, COALESCE(r.started_at, CASE
      WHEN r.claimed_at > r.scheduled_at THEN r.claimed_at ELSE r.scheduled_at END) AS since,
      'the database lost commits' AS why, n.now
  FROM n
  CROSS JOIN installation AS i
  JOIN live_runs AS r ON r.scheduled_at <= i.rolled_back_at
  WHERE i.rollback_choice = 'skip'
    AND r.node <> -3
    AND NOT (r.kind = 6 AND r.state IN ('queued', 'retrying'))
  ORDER BY r.scheduled_at + 0, r.trigger_id
  LIMIT $2
)
INSERT INTO attempts (scheduled_at, trigger_id, kind, attempt, node, started_at, ended_at,
    http_status, state, class, error)
SELECT c.of_at, c.of_trigger, c.of_kind, c.over, c.dead, c.since, c.now, 0, 'lost', 'other', c.why
FROM c
WHERE c.dead > 0
ON CONFLICT DO NOTHING
-- Part 2 of 4, in one transaction
WITH n AS MATERIALIZED (
  SELECT CASE WHEN $1 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE $1 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (SELECT value ->> 0 AS id FROM jsonb_each($3)) AS u
  CROSS JOIN n
),
c AS (
  SELECT r.scheduled_at AS of_at, r.trigger_id AS of_trigger, r.kind AS of_kind, r.job_id AS of_job,
      r.revision AS of_revision, CASE WHEN r.node > 0 THEN r.node ELSE 0 END AS of_node,
      r.claimed_at AS of_claimed, r.started_at AS of_started, n.now AS of_end,
      r.attempt AS over, r.http_status AS of_status, 'lost' AS of_state, 'other' AS of_class,
      'the database lost commits, and an operator chose to skip what was under way' AS of_error,
      r.waited AS of_waited, r.node AS dead, COALESCE(r.started_at, CASE
      WHEN r.claimed_at > r.scheduled_at THEN r.claimed_at ELSE r.scheduled_at END) AS since,
      'the database lost commits' AS why, n.now
  FROM n
  CROSS JOIN installation AS i
  JOIN live_runs AS r ON r.scheduled_at <= i.rolled_back_at
  WHERE i.rollback_choice = 'skip'
    AND r.node <> -3
    AND NOT (r.kind = 6 AND r.state IN ('queued', 'retrying'))
  ORDER BY r.scheduled_at + 0, r.trigger_id
  LIMIT $2
)
INSERT INTO runs (scheduled_at, trigger_id, kind, job_id, revision, node, ended_at, claimed_ms,
    started_ms, attempt, http_status, state, class, error, waited)
SELECT c.of_at, c.of_trigger, c.of_kind, c.of_job, c.of_revision, c.of_node, c.of_end, CASE
    WHEN c.of_claimed BETWEEN c.of_end - 2147483647 AND c.of_end + 2147483647 THEN c.of_end - c.of_claimed END,
    CASE
    WHEN c.of_started BETWEEN c.of_end - 2147483647 AND c.of_end + 2147483647 THEN c.of_end - c.of_started END,
    c.over, c.of_status, NULLIF(c.of_state, 'succeeded'), NULLIF(c.of_class, ''),
    NULLIF(c.of_error, ''), NULLIF(c.of_waited, '')
FROM c
WHERE 1 = 1
ON CONFLICT DO NOTHING
-- Part 3 of 4, in one transaction
WITH n AS MATERIALIZED (
  SELECT CASE WHEN $1 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE $1 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (SELECT value ->> 0 AS id FROM jsonb_each($3)) AS u
  CROSS JOIN n
),
c AS (
  SELECT r.scheduled_at AS of_at, r.trigger_id AS of_trigger, r.kind AS of_kind, r.job_id AS of_job,
      r.revision AS of_revision, CASE WHEN r.node > 0 THEN r.node ELSE 0 END AS of_node,
      r.claimed_at AS of_claimed, r.started_at AS of_started, n.now AS of_end,
      r.attempt AS over, r.http_status AS of_status, 'lost' AS of_state, 'other' AS of_class,
      'the database lost commits, and an operator chose to skip what was under way' AS of_error,
      r.waited AS of_waited, r.node AS dead, COALESCE(r.started_at, CASE
      WHEN r.claimed_at > r.scheduled_at THEN r.claimed_at ELSE r.scheduled_at END) AS since,
      'the database lost commits' AS why, n.now
  FROM n
  CROSS JOIN installation AS i
  JOIN live_runs AS r ON r.scheduled_at <= i.rolled_back_at
  WHERE i.rollback_choice = 'skip'
    AND r.node <> -3
    AND NOT (r.kind = 6 AND r.state IN ('queued', 'retrying'))
  ORDER BY r.scheduled_at + 0, r.trigger_id
  LIMIT $2
)
UPDATE trigger_clock AS t
SET ended_at = c.of_end
FROM c
WHERE t.id = c.of_trigger
  AND t.delayed
  AND t.prev_fire_time = c.of_at
  AND c.of_kind IN (1, 3)
  AND 1 = 1
-- Part 4 of 4, in one transaction
WITH n AS MATERIALIZED (
  SELECT CASE WHEN $1 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE $1 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (SELECT value ->> 0 AS id FROM jsonb_each($3)) AS u
  CROSS JOIN n
),
c AS (
  SELECT r.scheduled_at AS of_at, r.trigger_id AS of_trigger, r.kind AS of_kind, r.job_id AS of_job,
      r.revision AS of_revision, CASE WHEN r.node > 0 THEN r.node ELSE 0 END AS of_node,
      r.claimed_at AS of_claimed, r.started_at AS of_started, n.now AS of_end,
      r.attempt AS over, r.http_status AS of_status, 'lost' AS of_state, 'other' AS of_class,
      'the database lost commits, and an operator chose to skip what was under way' AS of_error,
      r.waited AS of_waited, r.node AS dead, COALESCE(r.started_at, CASE
      WHEN r.claimed_at > r.scheduled_at THEN r.claimed_at ELSE r.scheduled_at END) AS since,
      'the database lost commits' AS why, n.now
  FROM n
  CROSS JOIN installation AS i
  JOIN live_runs AS r ON r.scheduled_at <= i.rolled_back_at
  WHERE i.rollback_choice = 'skip'
    AND r.node <> -3
    AND NOT (r.kind = 6 AND r.state IN ('queued', 'retrying'))
  ORDER BY r.scheduled_at + 0, r.trigger_id
  LIMIT $2
)
DELETE FROM live_runs
WHERE (scheduled_at, trigger_id, kind) IN (SELECT c.of_at, c.of_trigger,
    c.of_kind FROM c WHERE 1 = 1)
