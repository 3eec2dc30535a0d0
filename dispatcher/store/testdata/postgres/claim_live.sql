WITH n AS MATERIALIZED (
  SELECT CASE
      WHEN $3::bigint = 0 THEN CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)
      ELSE $3 END AS now
),
b AS MATERIALIZED (
  SELECT u.*, next AS run_at, 1 AS kind, 'waiting' AS waiting, n.now, TRUE AS yes, FALSE AS no
  FROM unnest($5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[],
      $11::bigint[], $12::bigint[], $13::boolean[]) AS u(id, revision, calendars, prev, next,
      upto, upto_due, job_id, live)
  CROSS JOIN n
  WHERE (u.id = u.id + 0) IS NOT FALSE
    AND (u.id = u.id - 0) IS NOT FALSE
),
c AS (
  UPDATE trigger_clock AS t
  SET prev_fire_time = b.next, next_fire_time = b.upto, due_at = b.upto_due, state = CASE
      WHEN b.upto IS NULL AND NOT t.delayed THEN 'complete' ELSE t.state END, ended_at = NULL
  FROM b
  WHERE t.id = b.id
    AND t.revision = b.revision
    AND t.calendar_revision = b.calendars
    AND t.prev_fire_time IS NOT DISTINCT FROM b.prev
    AND t.next_fire_time = b.next
    AND (t.off = 0) = b.yes
    AND t.due_at <= b.now + $4
    AND (t.app_id IN (SELECT id FROM apps WHERE enabled)) = b.yes
    AND EXISTS (SELECT 1 FROM nodes WHERE id = $1 AND state = 'active')
  RETURNING t.id, b.job_id, t.app_id, t.revision, b.run_at, b.kind, b.now, b.yes, b.no, b.live
),
g AS (
  INSERT INTO claims (token, node, claimed_at, trigger_ids, scheduled_at, job_ids, revisions)
  SELECT $2, $1, min(c.now), array_agg(c.id), array_agg(c.run_at), array_agg(c.job_id),
      array_agg(c.revision)
  FROM c
  WHERE c.live = c.no HAVING count(*) > 0
),
l AS (
  INSERT INTO live_runs (scheduled_at, trigger_id, kind, job_id, app_id, revision, node, token,
      claimed_at, attempt, state)
  SELECT c.run_at, c.id, c.kind, c.job_id, c.app_id, c.revision, $1, $2, c.now, 1, 'claimed'
  FROM c
  WHERE c.live = c.yes
  ON CONFLICT DO NOTHING
  RETURNING scheduled_at, trigger_id, kind, job_id, revision, token, attempt, failures,
      retry_until, claimed_at, TRUE
)
SELECT c.run_at, c.id, c.kind, c.job_id, c.revision, CAST($2 AS bigint), 1, 0,
    CAST(NULL AS bigint), c.now, FALSE
FROM c
WHERE c.live = c.no
UNION ALL
SELECT *
FROM l
