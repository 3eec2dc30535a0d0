resource "carillon_app" "billing" {
  name = "billing"
  bounds {
    egress { ports = [443] }
  }
}

resource "carillon_endpoint_group" "workers" {
  app      = carillon_app.billing.name
  name     = "workers"
  strategy = "round-robin"
  endpoint {
    name   = "a"
    url    = "https://a.example.com/?x=1"
    wieght = 3
  }
  endpoint {
    name   = "b"
    url    = "https://b.example.com:8443"
    weight = 101
  }
  registration {
    networks     = ["10.0.0.0"]
    ports        = [70000]
    heartbeat    = "1m"
    expire_after = "90s"
  }
}

resource "carillon_endpoint_group" "again" {
  app  = "billing"
  name = "workers"
  endpoints = {
    a = { url = "https://a.example.com" }
  }
}

resource "carillon_job" "nightly" {
  app  = carillon_app.billing.name
  name = "nightly"
  target {
    group {
      name     = carillon_endpoint_group.workers.name
      path     = "nightly"
      strategy = "failovr"
    }
  }
}

resource "carillon_job" "weekly" {
  app  = carillon_app.billing.name
  name = "weekly"
  target {
    group {
      name = "wrokers"
    }
  }
}
