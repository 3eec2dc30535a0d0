# Declared by another team, in another configuration.
data "carillon_calendar" "holidays" {
  app  = "billing"
  name = "holidays"
}

resource "carillon_job" "payroll" {
  app  = "billing"
  name = "payroll"

  target {
    webhook {
      url = "https://billing.example.com/hooks/payroll"
    }
  }

  trigger {
    name       = "monthly"
    expression = "0 0 8 1 * ?"
    timezone   = "Europe/Berlin"
    calendar   = data.carillon_calendar.holidays.name
  }
}
