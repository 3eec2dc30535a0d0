resource "carillon_app" "billing" {
  name = "billing"
}

resource "carillon_job" "nightly_report" {
  app         = carillon_app.billing.name
  name        = "nightly-report"
  description = "Sends the figures of the day to every branch"

  target = {
    webhook = {
      url     = "https://billing.example.com/hooks/report"
      timeout = "2m"
      headers = {
        "X-Team" = "billing"
      }
      # In place of the payload, with what is known of the run put in.
      body = <<-EOT
        {"day": "{{date "%Y-%m-%d" "Europe/Berlin" .ScheduledAt}}", "since": {{json .PreviousFire}}, "what": {{json .Payload}}}
      EOT
    }
  }

  payload = jsonencode({
    report = "daily"
  })

  triggers = {
    # Quartz: second, minute, hour, day of month, month, day of week.
    eu = {
      expression = "0 30 2 ? * MON-FRI"
      timezone   = "Europe/Berlin"
    }
    # Unix: minute, hour, day of month, month, day of week. A local time that the clock skips
    # in spring fires when the gap ends.
    us = {
      expression = "30 2 * * 1-5"
      timezone   = "America/New_York"
      gap        = "next"
    }
    # An interval, only during a trial, and never more than 100 times.
    trial = {
      expression   = "rate(15 minutes)"
      start_at     = "2030-03-01T00:00:00+01:00"
      end_at       = "2030-03-31T23:59:59+02:00"
      repeat_count = 100
      enabled      = false
    }
  }
}
