SELECT scheduled_at, trigger_id, kind, job_id, revision, token, attempt, failures, retry_until
FROM runs
WHERE live
  AND node = $1
  AND (token = $2 OR $2 = 0)
  AND state NOT IN ('running', 'retrying')
