resource "carillon_app" "billing" {
  name = "billing"
}

resource "carillon_calendar" "holidays" {
  app         = carillon_app.billing.name
  name        = "holidays"
  description = "Days on which nobody is there"
  timezone    = "Europe/Berlin"

  rules = [
    # Every year, and once.
    { dates = ["01-01", "05-01", "10-03", "12-24/12-26", "2030-04-22"] },
    { weekdays = ["SAT", "SUN"] },
  ]

  # Triggers let go of a calendar before it is destroyed.
  lifecycle {
    create_before_destroy = true
  }
}

# Only during office hours, and never on a holiday.
resource "carillon_calendar" "office_hours" {
  app      = carillon_app.billing.name
  name     = "office-hours"
  timezone = "Europe/Berlin"
  bases    = [carillon_calendar.holidays.name]

  rules = [
    { from = "09:00", to = "17:30", only = true },
  ]

  lifecycle {
    create_before_destroy = true
  }
}

resource "carillon_job" "reminders" {
  app  = carillon_app.billing.name
  name = "reminders"

  target = {
    webhook = {
      url = "https://billing.example.com/hooks/reminders"
    }
  }

  triggers = {
    # Every hour from some minute on; what falls on a closed office is sent when it opens.
    hourly = {
      expression  = "H * * * *"
      calendar    = carillon_calendar.office_hours.name
      on_excluded = "next_included"
      jitter      = "5m"
    }
  }
}
