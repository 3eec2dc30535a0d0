WITH n AS MATERIALIZED (
  SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint) AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($3::bigint[], $4::bigint[], $5::integer[], $6::bigint[], $7::bigint[], $8::bigint[],
      $9::bigint[], $10::bigint[], $11::integer[], $12::text[], $13::text[], $14::text[],
      $15::text[]) AS u(scheduled_at, trigger_id, kind, token, attempt, node, started_at,
      ended_at, http_status, state, class, error, late)
  CROSS JOIN n
  WHERE (u.scheduled_at = u.scheduled_at + 0) IS NOT FALSE
    AND (u.scheduled_at = u.scheduled_at - 0) IS NOT FALSE
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
