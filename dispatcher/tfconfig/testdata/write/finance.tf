import {
  to = carillon_app.finance
  id = "finance"
}

resource "carillon_app" "finance" {
  name        = "finance"
  description = "pays $${bills}\n\u202e"
}

import {
  to = carillon_calendar.closed
  id = "finance/closed"
}

resource "carillon_calendar" "closed" {
  app   = carillon_app.finance.name
  name  = "closed"
  bases = [carillon_calendar.holidays.name]

  rule {
    weekdays = ["SAT", "SUN"]
  }
}

import {
  to = carillon_calendar.holidays
  id = "finance/holidays"
}

resource "carillon_calendar" "holidays" {
  app      = carillon_app.finance.name
  name     = "holidays"
  timezone = "Europe/Berlin"

  rule {
    dates = ["12-25"]
  }
}

import {
  to = carillon_job._9-nightly
  id = "finance/9-nightly"
}

resource "carillon_job" "_9-nightly" {
  app         = carillon_app.finance.name
  name        = "9-nightly"
  acknowledge = ["moved_hour"]
  payload     = "{\"sum\":1.50,\"with space\":[1,null,\"$${x}\"]}"

  target {
    webhook {
      url = "https://example.com/"
      headers = {
        X-A = "b"
      }

      auth {
        bearer {
          token {
            value = var.secret_9-nightly_auth_bearer_token
          }
        }
      }
    }
  }

  retry {
    max_attempts = 5
  }

  trigger {
    name        = "berlin"
    expression  = "0 30 8 * * ?"
    timezone    = "Europe/Berlin"
    calendar    = carillon_calendar.closed.name
    on_excluded = "next_included"
  }

  trigger {
    name       = "both"
    expression = "0 0 12 * * ?"
    timezone   = "UTC"
    overlap    = "both"
  }

  trigger {
    name       = "interval"
    expression = "rate(5m)"
  }
}

variable "secret_9-nightly_auth_bearer_token" {
  type      = string
  sensitive = true
  ephemeral = true
}
