WITH n AS MATERIALIZED (
  SELECT CASE
      WHEN $3::bigint = 0 THEN CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)
      ELSE $3 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($5::bigint[]) AS u(id)
  CROSS JOIN n
),
c AS (
  SELECT r.scheduled_at AS of_at, r.trigger_id AS of_trigger, r.kind AS of_kind, r.attempt AS over,
      r.node AS dead, COALESCE(r.started_at, r.claimed_at, r.scheduled_at) AS since,
      'the database lost commits' AS why, n.now
  FROM n
  CROSS JOIN installation AS i
  JOIN runs AS r ON r.live
    AND r.scheduled_at <= i.rolled_back_at
  WHERE i.rollback_choice = 'skip'
    AND (r.scheduled_at >= $1 OR r.scheduled_at > $1)
    AND (r.scheduled_at < $2 OR r.scheduled_at < $2 - 1)
  ORDER BY r.scheduled_at, r.trigger_id
  LIMIT $4
)
SELECT min(c.of_at), max(c.of_at)
FROM c
