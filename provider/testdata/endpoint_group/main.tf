resource "carillon_app" "billing" {
  name             = "billing"
  default_timezone = "UTC"
}

resource "carillon_endpoint_group" "workers" {
  app      = carillon_app.billing.name
  name     = "workers"
  path     = "/jobs"
  strategy = "weighted"
  endpoint {
    name   = "a"
    url    = "https://a.example.com"
    weight = 3
    labels = { zone = "a" }
  }
  endpoint {
    name   = "b"
    url    = "https://b.example.com/base"
    backup = true
  }
  dns {
    name     = "pods"
    hostname = "pods.example.internal"
    port     = 8080
  }
  dns {
    name     = "others"
    hostname = "_http._tcp.example.internal"
    type     = "SRV"
    labels   = { zone = "b" }
  }
  health_check {
    interval = "30s"
  }
  registration {
    networks     = ["10.0.0.0/16"]
    ports        = [8080]
    expire_after = "120s"
  }
}

resource "carillon_job" "nightly" {
  app  = carillon_app.billing.name
  name = "nightly"
  target {
    group {
      name     = carillon_endpoint_group.workers.name
      path     = "/nightly"
      strategy = "consistent_hash"
      hash_key = "{{.Trigger}}"

      endpoint_concurrency = "queue"
    }
  }
  trigger {
    name       = "t"
    expression = "0 0 2 * * ?"
  }
}
