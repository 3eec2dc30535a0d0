WITH n AS MATERIALIZED (
  SELECT CASE WHEN $5 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE $5 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS name, value ->> 1 AS labels
    FROM jsonb_each($8)
  ) AS u
  CROSS JOIN n
),
c AS (
  SELECT r.scheduled_at AS of_at, r.trigger_id AS of_trigger, r.kind AS of_kind, CASE
      WHEN r.node <> 0 AND j.delivery = 'at_most_once' AND j.revision = r.revision THEN r.attempt - 1
      ELSE r.attempt END AS over, CASE
      WHEN r.node <> 0 AND j.delivery = 'at_most_once' AND j.revision = r.revision THEN 0
      ELSE r.node END AS dead, r.claimed_at AS since, 'the node died' AS why,
      j.revision AS job_revision, n.now
  FROM n
  CROSS JOIN (
    SELECT 0 AS id
    UNION ALL
    SELECT id
    FROM nodes
    WHERE state = 'dead'
  ) AS gone
  JOIN runs AS r ON r.node = gone.id
    AND r.live
  JOIN jobs AS j ON j.id = r.job_id
  WHERE r.state NOT IN ('running', 'retrying')
    AND j.app_id IN (
    SELECT id
    FROM apps
    WHERE enabled
      AND ($7 = 0 OR name IN (SELECT name FROM b))
  )
    AND (j.node_labels = '' OR j.node_labels IN (SELECT labels FROM b))
    AND EXISTS (SELECT 1 FROM nodes WHERE id = $3 AND state = 'active')
  ORDER BY r.scheduled_at, r.trigger_id
  LIMIT $6
)
SELECT min(c.of_at), max(c.of_at)
FROM c
WHERE CAST($4 AS bigint) <> 0
