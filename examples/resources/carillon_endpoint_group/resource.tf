variable "workers_token" {
  type      = string
  sensitive = true
  ephemeral = true
}

resource "carillon_app" "billing" {
  name             = "billing"
  default_timezone = "Europe/Berlin"
}

# Endpoints that are declared here.
resource "carillon_endpoint_group" "reports" {
  app      = carillon_app.billing.name
  name     = "reports"
  path     = "/jobs"
  strategy = "weighted"

  endpoint {
    name   = "big"
    url    = "https://reports-1.example.com"
    weight = 3
  }
  endpoint {
    name = "small"
    url  = "https://reports-2.example.com"
  }
  # It is chosen only while both others are away.
  endpoint {
    name   = "spare"
    url    = "https://reports-3.example.com"
    backup = true
    labels = { zone = "b" }
  }

  auth {
    bearer {
      token {
        value         = var.workers_token
        value_version = "1"
      }
    }
  }
}

# Endpoints that register themselves every 10 s, from one network.
resource "carillon_endpoint_group" "workers" {
  app      = carillon_app.billing.name
  name     = "workers"
  strategy = "least_connections"

  registration {
    networks     = ["10.20.0.0/16"]
    ports        = [8080]
    heartbeat    = "10s"
    expire_after = "30s"
  }
}

resource "carillon_job" "daily_report" {
  app  = carillon_app.billing.name
  name = "daily-report"

  target {
    group {
      name    = carillon_endpoint_group.reports.name
      path    = "/daily-report"
      timeout = "2m"
    }
  }

  trigger {
    name       = "nightly"
    expression = "0 30 4 * * ?"
  }
}

# All runs of a customer go to the same worker, as long as it is there.
resource "carillon_job" "invoice" {
  app  = carillon_app.billing.name
  name = "invoice"

  target {
    group {
      name     = carillon_endpoint_group.workers.name
      path     = "/invoice"
      strategy = "consistent_hash"
      hash_key = "{{json .Payload}}"
    }
  }

  payload = jsonencode({ customer = "c-1042" })
}
