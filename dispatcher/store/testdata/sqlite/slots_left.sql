SELECT s.job_id, s.scheduled_at, s.trigger_id, s.kind, s.endpoint, s.token, s.gone, s.place
FROM (
  SELECT p.*, CASE WHEN p.node = $1 THEN NOT EXISTS (
    SELECT 1
    FROM live_runs AS r
    WHERE r.scheduled_at = p.scheduled_at
      AND r.trigger_id = p.trigger_id
      AND r.kind = p.kind
      AND r.node = p.node
      AND r.token = p.token
    LIMIT 1 OFFSET 0
  ) ELSE FALSE END AS gone
  FROM (
    SELECT x.job_id, x.scheduled_at, x.trigger_id, x.kind, x.endpoint, x.node, x.token,
        row_number() OVER (ORDER BY x.job_id, x.scheduled_at, x.trigger_id, x.kind,
        x.endpoint) AS place
    FROM slots AS x
    WHERE (x.job_id, x.scheduled_at, x.trigger_id, x.kind, x.endpoint) > ($2, $3, $4, $5, $6)
    ORDER BY x.job_id, x.scheduled_at, x.trigger_id, x.kind, x.endpoint
    LIMIT $7
  ) AS p
) AS s
WHERE s.gone
  OR s.place = $7
ORDER BY s.place
