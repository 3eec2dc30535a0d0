SELECT scheduled_at, trigger_id, kind, job_id, revision, token, attempt, failures, retry_until,
    claimed_at, TRUE
FROM live_runs
WHERE node = $1
  AND (token = $2 OR $2 = 0)
  AND state <> 'retrying'
  AND state <> 'running'
