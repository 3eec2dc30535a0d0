resource "carillon_app" "crm" {
  name             = "crm"
  description      = "Customers"
  default_timezone = "Europe/London"
}

resource "carillon_calendar" "weekends" {
  app         = carillon_app.crm.name
  name        = "weekends"
  description = "Saturdays and Sundays"
  rule { weekdays = ["SAT", "SUN"] }
}

resource "carillon_job" "nightly" {
  app         = carillon_app.crm.name
  name        = "nightly"
  description = "Imports orders"
  target {
    webhook {
      url = "https://crm.example.com/nightly"
    }
  }
  trigger {
    name       = "nightly"
    expression = "0 30 4 * * ?"
  }
}

resource "carillon_job" "weekly" {
  app         = carillon_app.crm.name
  name        = "weekly"
  description = "Sends the report"
  target {
    webhook {
      url = "https://crm.example.com/weekly"
    }
  }
  trigger {
    name       = "weekly"
    expression = "0 0 8 ? * MON"
  }
}
