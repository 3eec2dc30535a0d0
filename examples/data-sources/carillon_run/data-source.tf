data "carillon_runs" "failed" {
  app   = "billing"
  state = "failed"
  limit = 1
}

data "carillon_run" "latest_failure" {
  id = data.carillon_runs.failed.runs[0].id
}

output "responses" {
  value = data.carillon_run.latest_failure.attempts[*].response.body
}
