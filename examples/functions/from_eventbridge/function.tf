locals {
  # What aws_scheduler_schedule has as schedule_expression and schedule_expression_timezone.
  report = provider::carillon::from_eventbridge("cron(30 2 ? * MON-FRI *)", "Europe/Berlin")
}

resource "carillon_job" "report" {
  app  = "billing"
  name = "report"

  target {
    webhook {
      url = "https://billing.example.com/hooks/report"
    }
  }

  trigger {
    name       = "nightly"
    expression = local.report.expression
    dialect    = local.report.dialect
    timezone   = local.report.timezone
  }
}
