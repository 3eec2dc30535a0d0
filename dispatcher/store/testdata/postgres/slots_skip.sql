WITH n AS MATERIALIZED (
  SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint) AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($3::bigint[], $4::bigint[], $5::integer[], $6::bigint[], $7::integer[],
      $8::text[]) AS u(scheduled_at, trigger_id, kind, token, attempt, error)
  CROSS JOIN n
)
UPDATE runs AS r
SET live = FALSE, state = 'skipped', token = 0, ended_at = b.now, error = b.error, attempt = CASE
    WHEN r.node = -1 THEN r.attempt ELSE r.attempt - 1 END, node = CASE WHEN r.node = -1 THEN 0
    ELSE r.node END
FROM b
WHERE r.scheduled_at = b.scheduled_at
  AND r.trigger_id = b.trigger_id
  AND r.kind = b.kind
  AND (r.scheduled_at >= $1 OR r.scheduled_at > $1)
  AND (r.scheduled_at < $2 OR r.scheduled_at < $2 - 1)
  AND r.token = b.token
  AND r.attempt = b.attempt
  AND r.live = b.yes
