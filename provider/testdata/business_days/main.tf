resource "carillon_app" "payroll" {
  name             = "payroll"
  default_timezone = "Europe/London"
}

resource "carillon_calendar" "england" {
  app      = carillon_app.payroll.name
  name     = "england"
  timezone = "Europe/London"
  rule { weekdays = ["SAT", "SUN"] }
  rule {
    dates = [
      "2033-01-03", # New Year's Day is a Saturday
      "2033-04-15", # Good Friday
      "2033-04-18", # Easter Monday
      "2033-05-02", "2033-05-30", "2033-08-29",
      "2033-12-26", # Boxing Day
      "2033-12-27", # Christmas Day is a Sunday
    ]
  }
}

resource "carillon_job" "run" {
  app  = carillon_app.payroll.name
  name = "run"
  target {
    webhook {
      url = "https://payroll.example.com/run"
    }
  }
  trigger {
    name        = "invoices"
    expression  = "0 0 8 1,15 * ?"
    start_at    = "2033-01-01T00:00:00Z"
    calendar    = carillon_calendar.england.name
    on_excluded = "next_day"
  }
  trigger {
    name        = "mornings"
    expression  = "0 0 8 * * ?"
    start_at    = "2033-01-01T00:00:00Z"
    calendar    = carillon_calendar.england.name
    on_excluded = "next_day"
  }
  trigger {
    name        = "payday"
    expression  = "0 0 9 L * ?"
    start_at    = "2033-01-01T00:00:00Z"
    calendar    = carillon_calendar.england.name
    on_excluded = "previous_day"
  }
}
