variable "token" {
  type      = string
  ephemeral = true
}

resource "carillon_app" "shop" {
  name             = "shop"
  default_timezone = "UTC"
  bounds {
    lambda {
      functions = ["missed"]
    }
  }
}

resource "carillon_job" "load" {
  app  = carillon_app.shop.name
  name = "load"
  target {
    webhook {
      url = "https://warehouse.example.com/load"
    }
  }
  trigger {
    name       = "nightly"
    expression = "0 0 3 * * ?"
  }
  on_success {
    jobs    = [carillon_job.report.name, carillon_job.wipe.name]
    payload = "result"
  }
  on_failure {
    jobs = [carillon_job.wipe.name]
    webhook {
      url = "https://oncall.example.com/failed"
      signing {
        secret {
          name          = "v1"
          value         = var.token
          value_version = 1
        }
      }
    }
  }
  on_misfire {
    lambda {
      function = "missed"
    }
  }
}

resource "carillon_job" "report" {
  app  = carillon_app.shop.name
  name = "report"
  target {
    webhook {
      url = "https://warehouse.example.com/report"
    }
  }
  on_success {
    jobs = [carillon_job.wipe.name]
  }
}

resource "carillon_job" "wipe" {
  app  = carillon_app.shop.name
  name = "wipe"
  target {
    webhook {
      url = "https://warehouse.example.com/wipe"
    }
  }
}
