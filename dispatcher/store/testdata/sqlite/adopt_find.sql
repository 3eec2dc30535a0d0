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
),
a AS MATERIALIZED (
  SELECT s.app, coalesce(x.after_due, $4) AS after_due, x.after_at, x.after_trigger, x.after_kind
  FROM (WITH RECURSIVE s (app) AS (
    SELECT min(r.app_id)
    FROM live_runs AS r
    WHERE r.node = 0
      AND r.state NOT IN ('retrying', 'waiting_callback', 'running', 'waiting_shards')
    UNION ALL
    SELECT (
      SELECT min(r.app_id)
      FROM live_runs AS r
      WHERE r.node = 0
        AND r.state NOT IN ('retrying', 'waiting_callback', 'running', 'waiting_shards')
        AND r.app_id > s.app
    )
    FROM s
    WHERE s.app IS NOT NULL
  ) SELECT s.app FROM s WHERE s.app IS NOT NULL) AS s
  LEFT JOIN b AS x ON x.app = s.app
  WHERE s.app IN (
    SELECT a.id
    FROM apps AS a
    WHERE (a.enabled OR a.deleted_at IS NOT NULL)
      AND ($5 = 0 OR a.name IN (SELECT name FROM b))
  )
),
w AS (
  SELECT r.scheduled_at, r.trigger_id, r.kind, r.job_id, j.revision, r.app_id, r.scheduled_at AS due
  FROM a
  CROSS JOIN live_runs AS r
  CROSS JOIN jobs AS j
  WHERE j.id = r.job_id
    AND (r.scheduled_at, r.trigger_id, r.kind) IN (
    SELECT r.scheduled_at, r.trigger_id, r.kind
    FROM live_runs AS r
    CROSS JOIN jobs AS j
    WHERE j.id = r.job_id
      AND r.app_id = a.app
      AND r.node = 0
      AND r.state NOT IN ('retrying', 'waiting_callback', 'running', 'waiting_shards')
      AND r.scheduled_at + 0 >= a.after_due
      AND (a.after_at IS NULL OR (r.scheduled_at + 0, r.trigger_id, r.kind) > (a.after_at,
          a.after_trigger, a.after_kind))
      AND (j.node_labels = '' OR j.deleted_at IS NOT NULL OR j.node_labels IN (SELECT labels FROM b))
      AND EXISTS (SELECT 1 FROM nodes WHERE id = $1 AND state = 'active')
    ORDER BY r.scheduled_at + 0, r.trigger_id, r.kind
    LIMIT $3
  )
  UNION ALL
  SELECT r.scheduled_at, r.trigger_id, r.kind, r.job_id, j.revision, r.app_id, r.scheduled_at
  FROM nodes AS o
  CROSS JOIN live_runs AS r ON r.node = o.id
    AND r.state NOT IN ('retrying', 'waiting_callback')
    AND r.state NOT IN ('running', 'waiting_shards')
  CROSS JOIN jobs AS j
  LEFT JOIN b AS x ON x.app = r.app_id
  WHERE j.id = r.job_id
    AND o.state = 'dead'
    AND (o.empty_at IS NULL OR o.empty_at > (SELECT now FROM n) OR (SELECT now FROM n) - o.empty_at >= o.empty_at - o.heartbeat_at OR (SELECT now FROM n) - o.empty_at >= 300000)
    AND r.scheduled_at + 0 >= coalesce(x.after_due, $4)
    AND (x.after_at IS NULL OR (r.scheduled_at + 0, r.trigger_id, r.kind) > (x.after_at,
        x.after_trigger, x.after_kind))
    AND j.app_id IN (
    SELECT a.id
    FROM apps AS a
    WHERE (a.enabled OR a.deleted_at IS NOT NULL)
      AND ($5 = 0 OR a.name IN (SELECT name FROM b))
  )
    AND (j.node_labels = '' OR j.deleted_at IS NOT NULL OR j.node_labels IN (SELECT labels FROM b))
    AND EXISTS (SELECT 1 FROM nodes WHERE id = $1 AND state = 'active')
)
SELECT w.scheduled_at, w.trigger_id, w.kind, w.job_id, w.revision, w.due, w.app_id,
    w.turn < w.of_app
  OR w.of_app >= $3
FROM (
  SELECT w.*, row_number() OVER (PARTITION BY w.app_id ORDER BY w.due, w.scheduled_at, w.trigger_id,
      w.kind) AS turn, count(*) OVER (PARTITION BY w.app_id) AS of_app
  FROM w
) AS w
ORDER BY w.turn, w.due, w.scheduled_at, w.trigger_id, w.kind
LIMIT $3
