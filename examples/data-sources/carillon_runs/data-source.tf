data "carillon_runs" "failed" {
  app   = "billing"
  job   = "nightly-report"
  state = "failed"
  from  = "2026-11-01T00:00:00Z"
  limit = 20
}

output "failures" {
  value = data.carillon_runs.failed.runs[*].scheduled_at
}
