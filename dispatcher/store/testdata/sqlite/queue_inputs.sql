WITH n AS MATERIALIZED (
  SELECT CASE WHEN 0 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE 0 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS scheduled_at, value ->> 1 AS trigger_id, value ->> 2 AS kind,
        value ->> 3 AS input
    FROM jsonb_each($1)
  ) AS u
  CROSS JOIN n
)
INSERT INTO run_inputs (scheduled_at, trigger_id, kind, input)
SELECT b.scheduled_at, b.trigger_id, b.kind, b.input
FROM b
WHERE 1 = 1
ON CONFLICT (scheduled_at, trigger_id, kind) DO UPDATE SET input = excluded.input
