data "carillon_job" "report" {
  app  = "billing"
  name = "nightly-report"
}

# The plan shows a warning while an operator has paused a trigger.
check "report_runs" {
  assert {
    condition     = alltrue([for trigger in data.carillon_job.report.triggers : trigger.state == "waiting"])
    error_message = "A trigger of billing/nightly-report is not waiting for its next fire."
  }
}

output "next_report" {
  value = data.carillon_job.report.triggers["eu"].next_fire_time
}
