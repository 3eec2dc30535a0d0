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
  eject_after = 0
  path        = "/jobs"
  strategy    = "weighted"

  auth {
    bearer {
      token {
        value = var.secret_9-workers_auth_bearer_token
      }
    }
  }

  dns {
    name     = "others"
    hostname = "_http._tcp.internal"
    labels = {
      zone = "b"
    }
    type = "SRV"
  }

  dns {
    name     = "pods"
    hostname = "pods.internal"
    port     = 8080
  }

  endpoint {
    name = "a"
    url  = "https://a.example.com"
    labels = {
      zone = "a"
    }
    weight = 3
  }

  endpoint {
    name   = "b"
    url    = "https://b.example.com"
    backup = true
  }

  health_check {
    interval = "1m"
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

  auth {
    oauth2 {
      algorithm   = "ES256"
      client_auth = "private_key_jwt"
      client_id   = "billing"
      key_id      = "1"
      scopes      = ["jobs", "fleet"]
      token_url   = "https://login.example.com/token"

      private_key {
        reference = "file:billing/key.pem"
      }
    }
  }

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
  to = carillon_endpoint_group.xxl
  id = "billing/xxl"
}

resource "carillon_endpoint_group" "xxl" {
  app         = carillon_app.billing.name
  name        = "xxl"
  app_name    = "billing-executor"
  eject_after = 0
  kind        = "xxl_job"

  access_token {
    value = var.secret_xxl_access_token
  }
}

variable "secret_xxl_access_token" {
  type      = string
  sensitive = true
  ephemeral = true
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
      name                 = carillon_endpoint_group._9-workers.name
      endpoint_concurrency = "queue"
      hash_key             = "{{.Trigger}}"
      path                 = "/nightly"
      strategy             = "consistent_hash"
    }
  }
}

import {
  to = carillon_job.of-xxl
  id = "billing/of-xxl"
}

resource "carillon_job" "of-xxl" {
  app  = carillon_app.billing.name
  name = "of-xxl"

  target {
    group {
      name = carillon_endpoint_group.xxl.name

      xxl_job {
        executor_timeout = "1m"
        handler          = "demoJobHandler"
        param            = "$${monthly}"
      }
    }
  }
}
