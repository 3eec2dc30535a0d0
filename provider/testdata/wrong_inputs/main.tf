resource "carillon_app" "a" {
  name = "crm"
  bounds {
    egress {
      ports = [443, 99999]
    }
  }
}

resource "carillon_job" "j" {
  app                = "crm"
  name               = "nightly"
  concurrency_policy = "Forbid"
  target {
    webhook {
      url           = "https://example.com/"
      success_codes = ["2xx", "2XX"]
      headers = {
        "Content-Length" = "1"
      }
      signing {
        secret {
          name      = "a"
          reference = "nope"
        }
      }
      auth {
        bearer {
          token {
          }
        }
      }
    }
  }
  retry {
    max_attempts = 5
    base         = "30"
    delays       = ["1s", "1"]
  }
  trigger {
    name       = "t"
    expression = "0 0 2 * * *"
    timezone   = "CEST"
  }
  trigger {
    name           = "u"
    expression     = "@daily"
    misfire_policy = "fire-once"
  }
}

resource "carillon_calendar" "c" {
  app  = "crm"
  name = "c"
  rule {
    dates = ["12-25"]
  }
  rule {
    dates = ["12-25", "12-32"]
  }
}
