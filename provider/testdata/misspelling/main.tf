resource "carillon_app" "finance" {
  name = "finance"
  bounds {
    quotas {
      job = 500
    }
    egress {
      host = ["*.example.com"]
    }
    sign_as_node {
      servise = "execute-api"
      hosts   = ["*.example.com"]
    }
  }
}

resource "carillon_calendar" "holidays" {
  app  = "finance"
  name = "holidays"
  rule {
    weekday = ["SAT"]
  }
  rules {
    dates = ["12-25"]
  }
}

resource "carillon_job" "billing" {
  app     = "finance"
  name    = "billing"
  priorty = 5
  target {
    webhook {
      url    = "https://example.com/billing"
      timeot = "5s"
      auth {
        bearer {
          token {
            refrence = "env:SECRET_FINANCE_TOKEN"
          }
        }
      }
      signing {
        secret {
          name  = "current"
          valeu = "x"
        }
      }
      tsl {
        min_version = "1.3"
      }
    }
  }
  retry {
    max_attemps = 5
  }
  trigger {
    name       = "berlin"
    expression = "0 30 2 * * ?"
    timezon    = "Europe/Berlin"
  }
  triger "tokyo" {
    expression = "0 30 2 * * ?"
  }
  dynamic "trigger" {
    for_each = { a = 1 }
    content {
      name      = trigger.key
      expresion = "0 30 2 * * ?"
    }
  }
}

resource "carillon_job" "report" {
  app  = "finance"
  name = "report"
  target {
    lamda {
      function = "report"
    }
    lambda {
      function = "report"
      assume_role {
        rolearn = "arn:aws:iam::123456789012:role/report"
      }
    }
  }
  # A label is refused, too, and so is a missing name, and what no longer is an attribute.
  trigger "monthly" {
    name       = "monthly"
    expression = "0 0 6 1 * ?"
  }
  trigger {
    expression = "0 0 6 2 * ?"
  }
  triggers = {
    weekly = { expression = "0 0 6 ? * MON" }
  }
}

resource "carillon_job" "empty" {
  app  = "finance"
  name = "empty"
}
