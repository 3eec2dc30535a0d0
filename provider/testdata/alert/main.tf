resource "carillon_app" "billing" {
  name = "billing"

  bounds {
    sns {
      topics = ["arn:aws:sns:eu-central-1:123456789012:on-call"]
    }
  }
}

resource "carillon_alert" "default" {
  app         = carillon_app.billing.name
  name        = "default"
  description = "the channel of the team"

  failure {
    after        = 2
    repeat_every = 5
  }
  missed         = true
  late_after     = "300s"
  overrun_after  = "2h"
  no_success_for = "26h"
  objective      = true
  blocked        = true
  recovery       = false

  mute {
    schedule = "0 22 * * *"
    duration = "480m"
    timezone = "Europe/Berlin"
  }
  mute {
    from = "2027-12-24T00:00:00+01:00"
    to   = "2027-12-27T00:00:00+01:00"
  }

  destination {
    webhook {
      url     = "https://alerts.example.com/"
      headers = { "X-Alert" = "{{.Alert}}" }

      secret_url {
        reference = "env:SECRET_BILLING_ALERTS"
      }

      signing {
        secret {
          name      = "first"
          reference = "file:billing/alerts"
        }
      }
    }
  }

  retry {
    max_attempts = 5
    max_age      = "1h"
  }
}

resource "carillon_alert" "on_call" {
  app    = carillon_app.billing.name
  name   = "on-call"
  jobs   = ["nightly"]
  labels = { tier = "critical" }

  failure {}

  destination {
    webhook {
      url      = "https://events.pagerduty.com/v2/enqueue"
      format   = "pagerduty"
      severity = "critical"

      routing_key {
        value         = "CANARY-of-pagerduty-1234567890ab"
        value_version = "1"
      }
    }
  }
}

resource "carillon_alert" "topic" {
  app    = carillon_app.billing.name
  name   = "topic"
  jobs   = ["nightly"]
  missed = true

  destination {
    sns {
      topic_arn = "arn:aws:sns:eu-central-1:123456789012:on-call"
    }
  }
}
