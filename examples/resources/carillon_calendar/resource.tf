resource "carillon_app" "billing" {
  name = "billing"
}

resource "carillon_calendar" "holidays" {
  app         = carillon_app.billing.name
  name        = "holidays"
  description = "Days on which the office is closed"
  timezone    = "Europe/Berlin"

  # Dates of every year, and one date of 2030.
  rule { dates = ["01-01", "05-01", "10-03", "12-24/12-26", "2030-04-22"] }
  rule { weekdays = ["SAT", "SUN"] }
}

# Excludes everything outside office hours, and all holidays.
resource "carillon_calendar" "office_hours" {
  app      = carillon_app.billing.name
  name     = "office-hours"
  timezone = "Europe/Berlin"
  bases    = [carillon_calendar.holidays.name]

  rule {
    from = "09:00"
    to   = "17:30"
    only = true
  }
}

resource "carillon_job" "reminders" {
  app  = carillon_app.billing.name
  name = "reminders"

  target {
    webhook {
      url = "https://billing.example.com/hooks/reminders"
    }
  }

  # Every hour, at a minute that Carillon picks from the names. Fires while the office is closed
  # become one fire when it opens, at another hour than theirs, which is what is wanted here.
  acknowledge = ["moved_hour"]
  trigger {
    name        = "hourly"
    expression  = "H * * * *"
    timezone    = "Europe/Berlin"
    calendar    = carillon_calendar.office_hours.name
    on_excluded = "next_included"
    jitter      = "5m"
  }
}
