resource "carillon_app" "billing" {
  name = "billing"
}

# Selects nothing, so it is the default of the app: all jobs that no other alert selects.
resource "carillon_alert" "channel" {
  app  = carillon_app.billing.name
  name = "channel"

  failure {
    after        = 2
    repeat_every = 10
  }
  missed = true

  destination {
    webhook {
      url    = "https://hooks.slack.com/"
      format = "slack"

      secret_url { # https://hooks.slack.com/services/…
        reference = "env:SECRET_BILLING_SLACK"
      }
    }
  }

  mute {
    schedule = "0 22 * * *"
    duration = "8h"
    timezone = "Europe/Berlin"
  }
}

# Jobs that somebody has to be woken for.
resource "carillon_alert" "on_call" {
  app    = carillon_app.billing.name
  name   = "on-call"
  labels = { tier = "critical" }

  failure {}
  late_after     = "5m"
  no_success_for = "26h"
  objective      = true

  destination {
    webhook {
      url      = "https://events.pagerduty.com/v2/enqueue"
      format   = "pagerduty"
      severity = "critical"

      routing_key {
        reference = "file:billing/pagerduty"
      }
    }
  }
}

# Any other receiver, by a template.
resource "carillon_alert" "tickets" {
  app    = carillon_app.billing.name
  name   = "tickets"
  labels = { step = "close-month" }

  failure {}

  destination {
    webhook {
      url    = "https://tickets.example.com/api"
      format = "template"
      body   = <<-EOT
        {"title": {{json .Title}}, "why": {{json .Error}}, "open": {{if .By}}false{{else}}true{{end}}}
      EOT

      auth {
        bearer {
          token {
            reference = "file:billing/tickets"
          }
        }
      }
    }
  }
}
