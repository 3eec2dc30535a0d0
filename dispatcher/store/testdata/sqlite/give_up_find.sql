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
      n.now
  FROM n
  CROSS JOIN runs AS r
  WHERE r.state = 'retrying'
    AND r.next_attempt_at <= n.now
    AND r.retry_until < n.now
  ORDER BY r.scheduled_at, r.trigger_id
  LIMIT $4
)
SELECT min(c.of_at), max(c.of_at)
FROM c
