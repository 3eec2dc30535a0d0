WITH n AS MATERIALIZED (
  SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint) AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($3::bigint[], $4::bigint[], $5::integer[], $6::bigint[], $7::bigint[],
      $8::boolean[]) AS u(scheduled_at, trigger_id, kind, job_id, revision, has_input)
  CROSS JOIN n
  WHERE (u.scheduled_at = u.scheduled_at + 0) IS NOT FALSE
    AND (u.scheduled_at = u.scheduled_at - 0) IS NOT FALSE
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
DELETE FROM live_runs AS r USING c
WHERE r.scheduled_at = ANY (ARRAY[c.of_at])
  AND r.trigger_id = c.of_trigger
  AND r.kind = c.of_kind
  AND c.of_kind > 0
RETURNING scheduled_at, trigger_id, kind
