WITH n AS MATERIALIZED (
  SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint) AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($1::bigint[], $2::bigint[], $3::integer[], $4::bigint[],
      $5::bigint[]) AS u(scheduled_at, trigger_id, kind, token, attempt)
  CROSS JOIN n
  WHERE (u.scheduled_at = u.scheduled_at + 0) IS NOT FALSE
    AND (u.scheduled_at = u.scheduled_at - 0) IS NOT FALSE
)
UPDATE live_runs AS r
SET state = 'queued', node = -1, token = 0, claimed_at = NULL, attempt = r.attempt - 1, waited =
    CASE WHEN r.attempt = 1 THEN 'slot' ELSE r.waited END
FROM b
WHERE r.scheduled_at = ANY (ARRAY[b.scheduled_at])
  AND r.trigger_id = b.trigger_id
  AND r.kind = b.kind
  AND r.token = b.token
  AND r.attempt = b.attempt
