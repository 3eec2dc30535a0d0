resource "carillon_app" "billing" {
  name = "billing"
}

resource "carillon_job" "nightly_report" {
  app         = carillon_app.billing.name
  name        = "nightly-report"
  description = "Sends the daily figures to every branch"

  target {
    webhook {
      url     = "https://billing.example.com/hooks/report"
      timeout = "2m"
      headers = {
        "X-Team" = "billing"
      }
      # A template that replaces the payload as the body.
      body = <<-EOT
        {"day": "{{date "%Y-%m-%d" "Europe/Berlin" .ScheduledAt}}", "since": {{json .PreviousFire}}, "payload": {{json .Payload}}}
      EOT
    }
  }

  payload = jsonencode({
    report = "daily"
  })

  # Quartz: second, minute, hour, day of month, month, day of week.
  trigger {
    name       = "eu"
    expression = "0 30 2 ? * MON-FRI"
    timezone   = "Europe/Berlin"
  }
  # Unix: minute, hour, day of month, month, day of week. When the clock skips 02:30 in spring,
  # gap = "next" fires the trigger at the end of the gap.
  trigger {
    name       = "us"
    expression = "30 2 * * 1-5"
    timezone   = "America/New_York"
    gap        = "next"
  }
  # An interval during one month, at most 100 times. It is disabled for now.
  trigger {
    name         = "trial"
    expression   = "rate(15 minutes)"
    start_at     = "2030-03-01T00:00:00+01:00"
    end_at       = "2030-03-31T23:59:59+02:00"
    repeat_count = 100
    enabled      = false
  }
}
