mock_provider "carillon" {}

run "both_jobs" {
  variables {
    report_function_arn = "arn:aws:lambda:eu-central-1:123456789012:function:report"
  }
  assert {
    condition     = one(carillon_job.hello.trigger).expression == "rate(10 seconds)" && length(carillon_job.report) == 1
    error_message = "A job is missing."
  }
}
