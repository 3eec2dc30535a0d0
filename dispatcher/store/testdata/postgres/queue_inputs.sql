WITH n AS MATERIALIZED (
  SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint) AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($1::bigint[], $2::bigint[], $3::integer[], $4::text[]) AS u(scheduled_at, trigger_id,
      kind, input)
  CROSS JOIN n
  WHERE (u.scheduled_at = u.scheduled_at + 0) IS NOT FALSE
    AND (u.scheduled_at = u.scheduled_at - 0) IS NOT FALSE
)
INSERT INTO run_inputs (scheduled_at, trigger_id, kind, input)
SELECT b.scheduled_at, b.trigger_id, b.kind, b.input
FROM b
WHERE 1 = 1
ON CONFLICT (scheduled_at, trigger_id, kind) DO UPDATE SET input = excluded.input
