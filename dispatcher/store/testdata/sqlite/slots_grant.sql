WITH n AS MATERIALIZED (
  SELECT CASE WHEN 0 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE 0 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS scheduled_at, value ->> 1 AS trigger_id, value ->> 2 AS kind,
        value ->> 3 AS token, value ->> 4 AS attempt, value ->> 5 AS node,
        value ->> 6 AS job_id, value ->> 7 AS endpoint
    FROM jsonb_each($1)
  ) AS u
  CROSS JOIN n
)
INSERT INTO slots (job_id, scheduled_at, trigger_id, kind, endpoint, node, token, since)
SELECT b.job_id, b.scheduled_at, b.trigger_id, b.kind, b.endpoint, b.node, b.token, b.now
FROM b
WHERE 1 = 1
ON CONFLICT (job_id, scheduled_at, trigger_id, kind, endpoint) DO UPDATE SET node = excluded.node,
    token = excluded.token, since = CASE WHEN slots.node = -1 THEN excluded.since
    ELSE slots.since END
