WITH n AS MATERIALIZED (
  SELECT CASE WHEN 0 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE 0 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS scheduled_at, value ->> 1 AS trigger_id, value ->> 2 AS kind,
        value ->> 3 AS token, value ->> 4 AS attempt, value ->> 5 AS node,
        value ->> 6 AS started_at, value ->> 7 AS ended_at, value ->> 8 AS http_status,
        value ->> 9 AS state, value ->> 10 AS class, value ->> 11 AS error,
        value ->> 12 AS late
    FROM jsonb_each($3)
  ) AS u
  CROSS JOIN n
)
UPDATE attempts AS r
SET late_result = b.late, node = b.node
FROM b
WHERE r.scheduled_at = b.scheduled_at
  AND r.trigger_id = b.trigger_id
  AND r.kind = b.kind
  AND (r.scheduled_at >= $1 OR r.scheduled_at > $1)
  AND (r.scheduled_at < $2 OR r.scheduled_at < $2 - 1)
  AND r.attempt = b.attempt
  AND (r.node = b.node OR r.node = 0 AND r.state = 'cancelled')
  AND r.late_result IS NULL
  AND NOT (r.state = b.state AND r.started_at = b.started_at AND r.ended_at = b.ended_at)
