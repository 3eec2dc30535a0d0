import {
  to = carillon_app.shop
  id = "shop"
}

resource "carillon_app" "shop" {
  name = "shop"
}

import {
  to = carillon_job._9-report
  id = "shop/9-report"
}

resource "carillon_job" "_9-report" {
  app  = carillon_app.shop.name
  name = "9-report"

  target {
    webhook {
      url = "https://example.com/9-report"
    }
  }
}

import {
  to = carillon_job.load
  id = "shop/load"
}

resource "carillon_job" "load" {
  app  = carillon_app.shop.name
  name = "load"

  target {
    webhook {
      url = "https://example.com/load"
    }
  }

  on_success {
    jobs    = [carillon_job._9-report.name, "of-another-module"]
    payload = "result"
  }

  on_failure {
    jobs = [carillon_job._9-report.name]

    webhook {
      url = "https://oncall.example.com"

      signing {
        secret {
          name  = "v1"
          value = var.secret_load_on_failure_signing_secret_v1
        }
      }
    }
  }

  on_misfire {
    alert = "on-call"

    lambda {
      function = "missed"
    }
  }
}

variable "secret_load_on_failure_signing_secret_v1" {
  type      = string
  sensitive = true
  ephemeral = true
}
