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
      r.node AS dead, COALESCE(r.started_at, r.claimed_at) AS since, 'the node died' AS why,
      n.now
  FROM n
  CROSS JOIN nodes AS gone
  JOIN runs AS r ON r.node = gone.id
    AND r.live
  WHERE gone.state = 'dead'
    AND r.state = 'running'
  ORDER BY r.scheduled_at, r.trigger_id
  LIMIT $4
)
SELECT min(c.of_at), max(c.of_at)
FROM c
