resource "carillon_app" "crm" {
  name             = "crm"
  default_timezone = "Europe/London"
}

resource "carillon_calendar" "weekends" {
  app  = carillon_app.crm.name
  name = "weekends"
  rule { weekdays = ["SAT", "SUN"] }
}

resource "carillon_job" "nightly" {
  app  = carillon_app.crm.name
  name = "nightly"
  target {
    webhook {
      url = "https://crm.example.com/nightly"
    }
  }
  trigger {
    name       = "nightly"
    expression = "0 30 4 * * ?"
    timezone   = "UTC"
  }
}

resource "carillon_job" "report" {
  app  = carillon_app.crm.name
  name = "report"
  target {
    webhook {
      url = "https://crm.example.com/report"
    }
  }
  trigger {
    name       = "daily"
    expression = "0 0 8 * * ?"
    start_at   = "2033-01-01T00:00:00Z"
    calendar   = carillon_calendar.weekends.name
  }
}
