import {
  to = carillon_app.billing
  id = "billing"
}

resource "carillon_app" "billing" {
  name = "billing"
}

import {
  to = carillon_endpoint_group._9-workers
  id = "billing/9-workers"
}

resource "carillon_endpoint_group" "_9-workers" {
  app         = carillon_app.billing.name
  name        = "9-workers"
  description = "pays $${bills}"
  path        = "/jobs"
  strategy    = "weighted"

  auth {
    bearer {
      token {
        value = var.secret_9-workers_auth_bearer_token
      }
    }
  }

  endpoint "a" {
    url = "https://a.example.com"
    labels = {
      zone = "a"
    }
    weight = 3
  }

  endpoint "b" {
    url    = "https://b.example.com"
    backup = true
  }
}

variable "secret_9-workers_auth_bearer_token" {
  type      = string
  sensitive = true
  ephemeral = true
}

import {
  to = carillon_endpoint_group.fleet
  id = "billing/fleet"
}

resource "carillon_endpoint_group" "fleet" {
  app  = carillon_app.billing.name
  name = "fleet"

  probe {
    idle_path = "/free"
  }

  registration {
    expire_after = "2m"
    networks     = ["10.0.0.0/16"]
    ports        = [8080]
  }
}

import {
  to = carillon_job.nightly
  id = "billing/nightly"
}

resource "carillon_job" "nightly" {
  app  = carillon_app.billing.name
  name = "nightly"

  target {
    group {
      name     = carillon_endpoint_group._9-workers.name
      hash_key = "{{.Trigger}}"
      path     = "/nightly"
      strategy = "consistent_hash"
    }
  }
}
