WITH n AS MATERIALIZED (
  SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint) AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($1::bigint[], $2::bigint[], $3::integer[], $4::bigint[], $5::bigint[], $6::bigint[],
      $7::bigint[], $8::bigint[], $9::integer[], $10::text[], $11::text[], $12::text[],
      $13::bigint[], $14::bigint[], $15::integer[], $16::integer[], $17::boolean[],
      $18::bigint[], $19::bigint[], $20::text[], $21::bigint[], $22::bigint[], $23::bigint[],
      $24::text[]) AS u(scheduled_at, trigger_id, kind, token, attempt, node, started_at,
      ended_at, http_status, state, class, error, next_at, until_at, counts, not_attempted,
      stops, waits_for, wait_app, wait_host, wait_pause, wait_probe, callback_id, callback)
  CROSS JOIN n
  WHERE (u.scheduled_at = u.scheduled_at + 0) IS NOT FALSE
    AND (u.scheduled_at = u.scheduled_at - 0) IS NOT FALSE
),
chosen AS MATERIALIZED (
  SELECT r.scheduled_at AS of_at, r.trigger_id AS of_trigger, r.kind AS of_kind, r.job_id AS of_job,
      r.revision AS of_revision, CASE WHEN r.node > 0 THEN r.node ELSE 0 END AS of_node,
      r.claimed_at AS of_claimed, b.started_at AS of_started, b.ended_at AS of_end,
      r.attempt AS over, b.http_status AS of_status, b.state AS of_state, b.class AS of_class,
      b.error AS of_error, r.waited AS of_waited, r.failures + b.counts AS of_failures, CASE
      WHEN b.stops = b.yes AND t.prev_fire_time > b.scheduled_at THEN 0
      WHEN b.stops = b.yes AND t.next_fire_time <= b.until_at THEN t.next_fire_time - 1
      ELSE b.until_at END AS until_at, b.next_at, b.not_attempted, b.token AS of_token,
      b.waits_for AS of_wait, b.wait_app, b.wait_host, b.wait_pause, b.wait_probe,
      b.callback_id AS of_callback_id, b.callback AS of_callback
  FROM b
  JOIN live_runs AS r ON r.scheduled_at = ANY (ARRAY[b.scheduled_at])
    AND r.trigger_id = b.trigger_id
    AND r.kind = b.kind
    AND r.token = b.token
    AND r.attempt = b.attempt
  LEFT JOIN trigger_clock AS t ON t.id = r.trigger_id
  FOR UPDATE OF r
),
c AS MATERIALIZED (
  SELECT *
  FROM chosen
  WHERE (of_trigger = of_trigger + 0) IS NOT FALSE
    AND (of_trigger = of_trigger - 0) IS NOT FALSE
),
e1 AS (
  INSERT INTO attempts (scheduled_at, trigger_id, kind, attempt, node, started_at, ended_at,
      http_status, state, class, error)
  SELECT c.of_at, c.of_trigger, c.of_kind, c.over, c.of_node, c.of_started, c.of_end, c.of_status,
      c.of_state, c.of_class, c.of_error
  FROM c
  WHERE c.not_attempted = 0
    AND c.of_callback IS NULL
    AND (c.next_at <= c.until_at)
  ON CONFLICT DO NOTHING
),
e2 AS (
  INSERT INTO host_waits (id, app_id, job_id, host, pause, probe_at)
  SELECT c.of_wait, min(c.wait_app), min(c.of_job), min(c.wait_host), max(c.wait_pause),
      max(c.wait_probe)
  FROM c
  WHERE c.of_wait <> 0
    AND (c.next_at <= c.until_at) GROUP BY c.of_wait
  ORDER BY c.of_wait
  ON CONFLICT (id) DO UPDATE SET pause = CASE
      WHEN excluded.pause > host_waits.pause THEN excluded.pause ELSE host_waits.pause END,
      probe_at = CASE WHEN excluded.probe_at > host_waits.probe_at THEN excluded.probe_at
      ELSE host_waits.probe_at END
),
e3 AS (
  UPDATE slots AS s
  SET node = 0, token = 0
  FROM c
  WHERE s.job_id = c.of_job
    AND s.scheduled_at = c.of_at
    AND s.trigger_id = c.of_trigger
    AND s.kind = c.of_kind
    AND s.token = c.of_token
),
e4 AS (
  INSERT INTO runs (scheduled_at, trigger_id, kind, job_id, revision, node, ended_at, claimed_ms,
      started_ms, attempt, http_status, state, class, error, waited)
  SELECT c.of_at, c.of_trigger, c.of_kind, c.of_job, c.of_revision, c.of_node, c.of_end, CASE
      WHEN c.of_claimed BETWEEN c.of_end - 2147483647 AND c.of_end + 2147483647 THEN c.of_end - c.of_claimed END,
      CASE
      WHEN c.of_started BETWEEN c.of_end - 2147483647 AND c.of_end + 2147483647 THEN c.of_end - c.of_started END,
      c.over, c.of_status, NULLIF(c.of_state, 'succeeded'), NULLIF(c.of_class, ''),
      NULLIF(c.of_error, ''), NULLIF(c.of_waited, '')
  FROM c
  WHERE NOT (c.next_at <= c.until_at)
  ON CONFLICT DO NOTHING
),
e5 AS (
  UPDATE trigger_clock AS t
  SET ended_at = c.of_end
  FROM c
  WHERE t.id = c.of_trigger
    AND t.delayed
    AND t.prev_fire_time = c.of_at
    AND c.of_kind IN (1, 3)
    AND NOT (c.next_at <= c.until_at)
),
e6 AS (
  DELETE FROM live_runs AS r USING c
  WHERE r.scheduled_at = ANY (ARRAY[c.of_at])
    AND r.trigger_id = c.of_trigger
    AND r.kind = c.of_kind
    AND NOT (c.next_at <= c.until_at)
),
e7 AS (
  UPDATE live_runs AS r
  SET token = 0, state = CASE WHEN c.of_callback IS NULL THEN 'retrying'
      ELSE 'waiting_callback' END, next_attempt_at = CASE
      WHEN c.of_callback IS NOT NULL AND r.callback IS NOT NULL THEN c.of_end ELSE CASE
      WHEN c.of_wait <> 0 THEN c.until_at ELSE c.next_at END END,
      callback_id = c.of_callback_id, callback = CASE
      WHEN c.of_callback IS NOT NULL THEN coalesce(r.callback, c.of_callback) END,
      waits_for = c.of_wait, attempt = c.over - c.not_attempted, retry_until = CASE
      WHEN c.of_callback IS NULL THEN c.until_at ELSE r.retry_until END,
      failures = c.of_failures, started_at = c.of_started, http_status = c.of_status,
      class = c.of_class, error = c.of_error, waited = CASE
      WHEN c.not_attempted = 1 AND c.over = 1 THEN c.of_class ELSE r.waited END
  FROM c
  WHERE r.scheduled_at = ANY (ARRAY[c.of_at])
    AND r.trigger_id = c.of_trigger
    AND r.kind = c.of_kind
    AND (c.next_at <= c.until_at)
)
SELECT 1
FROM c
