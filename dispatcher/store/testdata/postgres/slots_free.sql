WITH n AS MATERIALIZED (
  SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint) AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($1::bigint[], $2::bigint[], $3::integer[], $4::bigint[], $5::bigint[], $6::bigint[],
      $7::bigint[], $8::text[]) AS u(scheduled_at, trigger_id, kind, token, attempt, node,
      job_id, endpoint)
  CROSS JOIN n
  WHERE (u.scheduled_at = u.scheduled_at + 0) IS NOT FALSE
    AND (u.scheduled_at = u.scheduled_at - 0) IS NOT FALSE
)
DELETE FROM slots
WHERE (job_id, scheduled_at, trigger_id, kind, endpoint) IN (
  SELECT job_id, scheduled_at, trigger_id, kind, endpoint
  FROM b
)
