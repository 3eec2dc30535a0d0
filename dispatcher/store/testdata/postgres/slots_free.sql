WITH n AS MATERIALIZED (
  SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint) AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($3::bigint[], $4::bigint[], $5::integer[], $6::bigint[],
      $7::integer[]) AS u(scheduled_at, trigger_id, kind, token, attempt)
  CROSS JOIN n
)
DELETE FROM slots AS r
WHERE (r.scheduled_at, r.trigger_id, r.kind) IN (SELECT scheduled_at, trigger_id, kind FROM b)
  AND (r.scheduled_at >= $1 OR r.scheduled_at > $1)
  AND (r.scheduled_at < $2 OR r.scheduled_at < $2 - 1)
