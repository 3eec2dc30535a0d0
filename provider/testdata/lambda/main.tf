resource "carillon_app" "finance" {
  name             = "finance"
  default_timezone = "Europe/Berlin"
  bounds {
    lambda {
      functions = ["arn:aws:lambda:eu-central-1:123456789012:function:finance-*"]
      roles     = ["arn:aws:iam::123456789012:role/finance-*"]
    }
  }
}

resource "carillon_job" "close" {
  app  = carillon_app.finance.name
  name = "close"
  target {
    lambda {
      function   = "arn:aws:lambda:eu-central-1:123456789012:function:payroll-close"
      invocation = "event"
      assume_role {
        role_arn = "arn:aws:iam::123456789012:role/admin"
      }
    }
  }
  trigger {
    name       = "nightly"
    expression = "0 30 4 * * ?"
  }
}
