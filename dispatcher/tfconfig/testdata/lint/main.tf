variable "receiver_url" {
  type = string
}

variable "zone" {
  default = "Europe/Berlin"
}

locals {
  hours = { eu = "0 0 8 ? * MON-FRI", us = "0 0 30 2 *" }
}

resource "carillon_app" "finance" {
  name      = "finance"
  retension = "24h"
  revision  = 3
}

resource "carillon_calendar" "holidays" {
  app  = carillon_app.finance.name
  name = "holidays"
  rule {
    dates = ["12-25", "13-77"]
  }
  rule { weekday = ["SAT"] }
}

# One problem is found in both instances and said once; another is in one of them.
resource "carillon_job" "each" {
  for_each = local.hours
  app      = carillon_app.finance.name
  name     = "job-${each.key}"
  target {
    webhook {
      url     = "${var.receiver_url}/x"
      headers = { "X-A" = "b", "Host" = "x" }
      retries = 3
    }
  }
  trigger {
    name          = "morning"
    expression    = each.value
    timezon       = var.zone
    misfire_after = "60"
    calendar      = carillon_calendar.holidays.name
  }
  trigger {
    name       = "gap"
    expression = "0 30 2 * * ?"
    timezone   = var.zone
  }
  retry { max_attempts = 1000 }
  payload = jsonencode({ a = 1 })
}

# The form that Carillon's attributes had before they were blocks, and the name of another job.
resource "carillon_job" "old" {
  app      = "finance"
  name     = "job-eu"
  target   = { webhook = { url = "https://example.com/" } }
  triggers = { a = { expression = "* * * * *" } }
}

resource "carillon_job" "dynamic" {
  app     = "finance"
  name    = "dynamic"
  enabled = "perhaps"
  headers {}
  target {
    lambda { function = "f" }
  }
  dynamic "trigger" {
    for_each = toset(["never", "often"])
    content {
      name       = trigger.value
      expression = trigger.value == "never" ? "0 0 0 30 2 ?" : "rate(5m)"
      descripton = "x"
    }
  }
}

# What depends on values that are not known is not judged, misspelt names are.
resource "carillon_job" "unknown" {
  for_each = var.nosuch
  app      = "finance"
  name     = each.key
  priority = each.value.priority
  target {
    webhook {
      url    = each.value.url
      metod  = "GET"
      method = each.value.method
    }
  }
  dynamic "trigger" {
    for_each = each.value.triggers
    content {
      name      = trigger.key
      expresion = trigger.value
    }
  }
}
