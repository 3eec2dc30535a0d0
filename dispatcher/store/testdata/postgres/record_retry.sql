WITH n AS MATERIALIZED (
  SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint) AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($3::bigint[], $4::bigint[], $5::integer[], $6::bigint[], $7::integer[], $8::bigint[],
      $9::bigint[], $10::bigint[], $11::integer[], $12::text[], $13::text[], $14::text[],
      $15::bigint[], $16::bigint[], $17::integer[], $18::integer[],
      $19::boolean[]) AS u(scheduled_at, trigger_id, kind, token, attempt, node, started_at,
      ended_at, http_status, state, class, error, next_at, until_at, counts, not_attempted,
      stops)
  CROSS JOIN n
),
c AS (
  SELECT r.scheduled_at AS of_at, r.trigger_id AS of_trigger, r.kind AS of_kind,
      r.token AS of_token, b.attempt AS over, b.node, b.started_at, b.ended_at, b.http_status,
      b.state, b.class, b.error, b.next_at, b.counts, b.not_attempted, CASE
      WHEN b.stops = b.yes AND t.prev_fire_time > r.scheduled_at THEN 0
      WHEN b.stops = b.yes AND t.next_fire_time <= b.until_at THEN t.next_fire_time - 1
      ELSE b.until_at END AS until_at
  FROM b
  JOIN runs AS r ON r.scheduled_at = b.scheduled_at
    AND r.trigger_id = b.trigger_id
    AND r.kind = b.kind
    AND (r.scheduled_at >= $1 OR r.scheduled_at > $1)
    AND (r.scheduled_at < $2 OR r.scheduled_at < $2 - 1)
    AND r.token = b.token
    AND r.attempt = b.attempt
    AND r.live = b.yes
  LEFT JOIN triggers AS t ON t.id = r.trigger_id
  FOR NO KEY UPDATE OF r
),
l AS (
  INSERT INTO attempts (scheduled_at, trigger_id, kind, attempt, node, started_at, ended_at,
      http_status, state, class, error)
  SELECT c.of_at, c.of_trigger, c.of_kind, c.over, c.node, c.started_at, c.ended_at, c.http_status,
      c.state, c.class, c.error
  FROM c
  WHERE c.not_attempted = 0
    AND c.next_at <= c.until_at
  ON CONFLICT DO NOTHING
)
UPDATE runs AS r
SET live = (c.next_at <= c.until_at), token = CASE WHEN c.next_at <= c.until_at THEN 0
    ELSE r.token END, state = CASE WHEN c.next_at <= c.until_at THEN 'retrying'
    ELSE c.state END, next_attempt_at = CASE WHEN c.next_at <= c.until_at THEN c.next_at END,
    ended_at = CASE WHEN c.next_at <= c.until_at THEN NULL ELSE c.ended_at END, attempt = CASE
    WHEN c.next_at <= c.until_at THEN c.over - c.not_attempted ELSE c.over END,
    retry_until = c.until_at, failures = r.failures + c.counts, started_at = c.started_at,
    http_status = c.http_status, class = c.class, error = c.error
FROM c
WHERE r.scheduled_at = c.of_at
  AND r.trigger_id = c.of_trigger
  AND r.kind = c.of_kind
  AND r.token = c.of_token
  AND (r.scheduled_at >= $1 OR r.scheduled_at > $1)
  AND (r.scheduled_at < $2 OR r.scheduled_at < $2 - 1)
