SELECT scheduled_at, trigger_id, kind, job_id, revision, token, attempt, failures, retry_until,
    claimed_at, TRUE, callback, has_input, waited
FROM live_runs AS r
WHERE node = $1
  AND r.state NOT IN ('retrying', 'waiting_callback')
  AND state = 'running'
