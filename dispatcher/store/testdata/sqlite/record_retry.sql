-- Part 1 of 5, in one transaction
WITH n AS MATERIALIZED (
  SELECT CASE WHEN 0 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE 0 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS scheduled_at, value ->> 1 AS trigger_id, value ->> 2 AS token,
        value ->> 3 AS job_id, value ->> 4 AS revision, value ->> 5 AS claimed_at,
        value ->> 6 AS node, value ->> 7 AS started_at, value ->> 8 AS ended_at,
        value ->> 9 AS http_status, value ->> 10 AS state, value ->> 11 AS class,
        value ->> 12 AS error, value ->> 13 AS next_at, value ->> 14 AS until_at,
        value ->> 15 AS counts, value ->> 16 AS not_attempted, value ->> 17 AS stops,
        value ->> 18 AS waits_for, value ->> 19 AS wait_app, value ->> 20 AS wait_host,
        value ->> 21 AS wait_pause, value ->> 22 AS wait_probe, value ->> 23 AS callback_id,
        value ->> 24 AS callback
    FROM jsonb_each($3)
  ) AS u
  CROSS JOIN n
),
f AS (SELECT token FROM claims), c AS (
  SELECT b.scheduled_at AS of_at, b.trigger_id AS of_trigger, 1 AS of_kind, b.job_id AS of_job,
      b.revision AS of_revision, b.node AS of_node, b.claimed_at AS of_claimed,
      b.started_at AS of_started, b.ended_at AS of_end, 1 AS over, b.http_status AS of_status,
      b.state AS of_state, b.class AS of_class, b.error AS of_error, '' AS of_waited,
      b.counts AS of_failures, CASE
      WHEN b.stops = b.yes AND t.prev_fire_time > b.scheduled_at THEN 0
      WHEN b.stops = b.yes AND t.next_fire_time <= b.until_at THEN t.next_fire_time - 1
      ELSE b.until_at END AS until_at, b.next_at, b.not_attempted, b.token AS of_token,
      b.waits_for AS of_wait, b.wait_app, b.wait_host, b.wait_pause, b.wait_probe,
      b.callback_id AS of_callback_id, b.callback AS of_callback
  FROM b
  LEFT JOIN trigger_clock AS t ON t.id = b.trigger_id
  WHERE (b.token IN (SELECT token FROM f)) = b.yes
)
INSERT INTO attempts (scheduled_at, trigger_id, kind, attempt, node, started_at, ended_at,
    http_status, state, class, error)
SELECT c.of_at, c.of_trigger, c.of_kind, c.over, c.of_node, c.of_started, c.of_end, c.of_status,
    c.of_state, c.of_class, c.of_error
FROM c
WHERE c.not_attempted = 0
  AND c.of_callback IS NULL
  AND (c.next_at <= c.until_at)
ON CONFLICT DO NOTHING
-- Part 2 of 5, in one transaction
WITH n AS MATERIALIZED (
  SELECT CASE WHEN 0 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE 0 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS scheduled_at, value ->> 1 AS trigger_id, value ->> 2 AS token,
        value ->> 3 AS job_id, value ->> 4 AS revision, value ->> 5 AS claimed_at,
        value ->> 6 AS node, value ->> 7 AS started_at, value ->> 8 AS ended_at,
        value ->> 9 AS http_status, value ->> 10 AS state, value ->> 11 AS class,
        value ->> 12 AS error, value ->> 13 AS next_at, value ->> 14 AS until_at,
        value ->> 15 AS counts, value ->> 16 AS not_attempted, value ->> 17 AS stops,
        value ->> 18 AS waits_for, value ->> 19 AS wait_app, value ->> 20 AS wait_host,
        value ->> 21 AS wait_pause, value ->> 22 AS wait_probe, value ->> 23 AS callback_id,
        value ->> 24 AS callback
    FROM jsonb_each($3)
  ) AS u
  CROSS JOIN n
),
f AS (SELECT token FROM claims), c AS (
  SELECT b.scheduled_at AS of_at, b.trigger_id AS of_trigger, 1 AS of_kind, b.job_id AS of_job,
      b.revision AS of_revision, b.node AS of_node, b.claimed_at AS of_claimed,
      b.started_at AS of_started, b.ended_at AS of_end, 1 AS over, b.http_status AS of_status,
      b.state AS of_state, b.class AS of_class, b.error AS of_error, '' AS of_waited,
      b.counts AS of_failures, CASE
      WHEN b.stops = b.yes AND t.prev_fire_time > b.scheduled_at THEN 0
      WHEN b.stops = b.yes AND t.next_fire_time <= b.until_at THEN t.next_fire_time - 1
      ELSE b.until_at END AS until_at, b.next_at, b.not_attempted, b.token AS of_token,
      b.waits_for AS of_wait, b.wait_app, b.wait_host, b.wait_pause, b.wait_probe,
      b.callback_id AS of_callback_id, b.callback AS of_callback
  FROM b
  LEFT JOIN trigger_clock AS t ON t.id = b.trigger_id
  WHERE (b.token IN (SELECT token FROM f)) = b.yes
)
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
-- Part 3 of 5, in one transaction
WITH n AS MATERIALIZED (
  SELECT CASE WHEN 0 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE 0 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS scheduled_at, value ->> 1 AS trigger_id, value ->> 2 AS token,
        value ->> 3 AS job_id, value ->> 4 AS revision, value ->> 5 AS claimed_at,
        value ->> 6 AS node, value ->> 7 AS started_at, value ->> 8 AS ended_at,
        value ->> 9 AS http_status, value ->> 10 AS state, value ->> 11 AS class,
        value ->> 12 AS error, value ->> 13 AS next_at, value ->> 14 AS until_at,
        value ->> 15 AS counts, value ->> 16 AS not_attempted, value ->> 17 AS stops,
        value ->> 18 AS waits_for, value ->> 19 AS wait_app, value ->> 20 AS wait_host,
        value ->> 21 AS wait_pause, value ->> 22 AS wait_probe, value ->> 23 AS callback_id,
        value ->> 24 AS callback
    FROM jsonb_each($3)
  ) AS u
  CROSS JOIN n
),
f AS (SELECT token FROM claims), c AS (
  SELECT b.scheduled_at AS of_at, b.trigger_id AS of_trigger, 1 AS of_kind, b.job_id AS of_job,
      b.revision AS of_revision, b.node AS of_node, b.claimed_at AS of_claimed,
      b.started_at AS of_started, b.ended_at AS of_end, 1 AS over, b.http_status AS of_status,
      b.state AS of_state, b.class AS of_class, b.error AS of_error, '' AS of_waited,
      b.counts AS of_failures, CASE
      WHEN b.stops = b.yes AND t.prev_fire_time > b.scheduled_at THEN 0
      WHEN b.stops = b.yes AND t.next_fire_time <= b.until_at THEN t.next_fire_time - 1
      ELSE b.until_at END AS until_at, b.next_at, b.not_attempted, b.token AS of_token,
      b.waits_for AS of_wait, b.wait_app, b.wait_host, b.wait_pause, b.wait_probe,
      b.callback_id AS of_callback_id, b.callback AS of_callback
  FROM b
  LEFT JOIN trigger_clock AS t ON t.id = b.trigger_id
  WHERE (b.token IN (SELECT token FROM f)) = b.yes
)
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
-- Part 4 of 5, in one transaction
WITH n AS MATERIALIZED (
  SELECT CASE WHEN 0 = 0 THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) ELSE 0 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, n.now, TRUE AS yes, FALSE AS no
  FROM (
    SELECT value ->> 0 AS scheduled_at, value ->> 1 AS trigger_id, value ->> 2 AS token,
        value ->> 3 AS job_id, value ->> 4 AS revision, value ->> 5 AS claimed_at,
        value ->> 6 AS node, value ->> 7 AS started_at, value ->> 8 AS ended_at,
        value ->> 9 AS http_status, value ->> 10 AS state, value ->> 11 AS class,
        value ->> 12 AS error, value ->> 13 AS next_at, value ->> 14 AS until_at,
        value ->> 15 AS counts, value ->> 16 AS not_attempted, value ->> 17 AS stops,
        value ->> 18 AS waits_for, value ->> 19 AS wait_app, value ->> 20 AS wait_host,
        value ->> 21 AS wait_pause, value ->> 22 AS wait_probe, value ->> 23 AS callback_id,
        value ->> 24 AS callback
    FROM jsonb_each($3)
  ) AS u
  CROSS JOIN n
),
f AS (SELECT token FROM claims), c AS (
  SELECT b.scheduled_at AS of_at, b.trigger_id AS of_trigger, 1 AS of_kind, b.job_id AS of_job,
      b.revision AS of_revision, b.node AS of_node, b.claimed_at AS of_claimed,
      b.started_at AS of_started, b.ended_at AS of_end, 1 AS over, b.http_status AS of_status,
      b.state AS of_state, b.class AS of_class, b.error AS of_error, '' AS of_waited,
      b.counts AS of_failures, CASE
      WHEN b.stops = b.yes AND t.prev_fire_time > b.scheduled_at THEN 0
      WHEN b.stops = b.yes AND t.next_fire_time <= b.until_at THEN t.next_fire_time - 1
      ELSE b.until_at END AS until_at, b.next_at, b.not_attempted, b.token AS of_token,
      b.waits_for AS of_wait, b.wait_app, b.wait_host, b.wait_pause, b.wait_probe,
      b.callback_id AS of_callback_id, b.callback AS of_callback
  FROM b
  LEFT JOIN trigger_clock AS t ON t.id = b.trigger_id
  WHERE (b.token IN (SELECT token FROM f)) = b.yes
)
INSERT INTO live_runs (scheduled_at, trigger_id, kind, job_id, app_id, revision, node, token,
    claimed_at, started_at, next_attempt_at, waits_for, retry_until, attempt, failures,
    http_status, state, class, error, callback_id, callback, waited)
SELECT c.of_at, c.of_trigger, c.of_kind, c.of_job,
    coalesce((SELECT o.app_id FROM jobs AS o WHERE o.id = c.of_job), 0), c.of_revision,
    c.of_node, 0, c.of_claimed, c.of_started, CASE WHEN c.of_wait <> 0 THEN c.until_at
    ELSE c.next_at END, c.of_wait, CASE WHEN c.of_callback IS NULL THEN c.until_at END,
    c.over - c.not_attempted, c.of_failures, c.of_status, CASE
    WHEN c.of_callback IS NULL THEN 'retrying' ELSE 'waiting_callback' END, c.of_class,
    c.of_error, c.of_callback_id, c.of_callback, CASE
    WHEN c.not_attempted = 1 AND c.over = 1 THEN c.of_class ELSE '' END
FROM c
WHERE (c.next_at <= c.until_at)
ON CONFLICT DO NOTHING
-- Part 5 of 5, in one transaction
DELETE FROM claims
WHERE token IN (SELECT value ->> 0 FROM jsonb_each($2))
