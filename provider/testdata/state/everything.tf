resource "carillon_app" "crm" {
  name      = "crm"
  retention = "720h"
  bounds {
    weight = 2
    quotas {
      jobs = 20
    }
    egress {
      hosts = ["*.example.com"]
      ports = [443]
    }
    lambda {
      functions = ["report"]
      roles     = ["arn:aws:iam::123456789012:role/report"]
    }
    sign_as_node {
      service = "execute-api"
      hosts   = ["*.example.com"]
    }
  }
}

resource "carillon_calendar" "holidays" {
  app      = carillon_app.crm.name
  name     = "holidays"
  timezone = "Europe/Berlin"
  rule {
    dates = ["01-01", "12-24/12-26"]
  }
  rule {
    weekdays = ["SAT", "SUN"]
  }
}

resource "carillon_job" "nightly" {
  app         = carillon_app.crm.name
  name        = "nightly"
  priority    = 3
  node_labels = { zone = "a" }
  payload     = jsonencode({ kind = "full" })
  retry {
    max_attempts = 4
    delays       = ["1s", "1m"]
  }
  target {
    webhook {
      url     = "https://hooks.example.com/nightly"
      headers = { X-Team = "crm" }
      timeout = "90s"
      auth {
        bearer {
          token {
            reference = "env:SECRET_CRM_TOKEN"
          }
        }
      }
      signing {
        secret {
          name      = "current"
          reference = "env:SECRET_CRM_HMAC"
        }
        secret {
          name      = "next"
          reference = "file:crm/next"
        }
      }
      tls {
        min_version = "1.3"
      }
    }
  }
  trigger {
    name          = "berlin"
    expression    = "0 30 4 ? * MON-FRI"
    timezone      = "Europe/Berlin"
    calendar      = carillon_calendar.holidays.name
    misfire_after = "5m"
  }
  trigger {
    name       = "often"
    expression = "rate(5m)"
  }
}

resource "carillon_job" "plain" {
  app  = carillon_app.crm.name
  name = "plain"
  target {
    lambda {
      function = "report"
    }
  }
  trigger {
    name       = "daily"
    expression = "0 0 2 * * ?"
    timezone   = "UTC"
  }
}
