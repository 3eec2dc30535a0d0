WITH n AS MATERIALIZED (
  SELECT CASE WHEN 0 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE 0 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS scheduled_at, value ->> 1 AS trigger_id, value ->> 2 AS kind,
        value ->> 3 AS job_id, value ->> 4 AS revision, value ->> 5 AS has_input
    FROM jsonb_each($3)
  ) AS u
  CROSS JOIN n
),
c AS MATERIALIZED (
  SELECT b.scheduled_at AS of_at, b.trigger_id AS of_trigger, b.kind AS of_kind
  FROM b
  WHERE EXISTS (
    SELECT 1
    FROM runs AS r
    WHERE r.scheduled_at = b.scheduled_at
      AND r.trigger_id = b.trigger_id
      AND r.kind = b.kind
      AND (r.scheduled_at >= $1 OR r.scheduled_at > $1)
      AND (r.scheduled_at < $2 OR r.scheduled_at < $2 - 1)
  )
)
DELETE FROM live_runs
WHERE (scheduled_at, trigger_id, kind) IN (
  SELECT c.of_at, c.of_trigger, c.of_kind
  FROM c
  WHERE c.of_kind > 0
)
RETURNING scheduled_at, trigger_id, kind
