# The first app and jobs. They are a configuration of their own, because jobs change more often than nodes, and
# by other people. CARILLON_ENDPOINT and CARILLON_TOKEN say where the nodes are; README.md has the commands.

terraform {
  required_version = ">= 1.11"

  required_providers {
    carillon = {
      source = "carillon-dev/carillon"
    }
  }
}

provider "carillon" {}

variable "webhook_url" {
  description = "URL that the job calls."
  type        = string
  default     = "https://example.com/hello"
}

variable "report_function_arn" {
  description = "A Lambda function of lambda_function_arns that makes a report each night; null for no such job."
  type        = string
  default     = null
}

resource "carillon_app" "first" {
  name        = "first"
  description = "Tries Carillon"

  # An app may invoke no function unless an operator lists it.
  bounds {
    lambda { functions = var.report_function_arn == null ? [] : [var.report_function_arn] }
  }
}

resource "carillon_job" "hello" {
  app  = carillon_app.first.name
  name = "hello"

  target {
    webhook {
      url = var.webhook_url
    }
  }

  trigger {
    name       = "often"
    expression = "rate(10 seconds)"
  }
}

resource "carillon_job" "report" {
  count = var.report_function_arn == null ? 0 : 1

  app  = carillon_app.first.name
  name = "report"

  target {
    lambda {
      function = var.report_function_arn
    }
  }

  trigger {
    name       = "nightly"
    expression = "0 30 2 ? * MON-FRI"
    timezone   = "Europe/Berlin"
  }
}
