resource "carillon_endpoint_group" "workers" {
  app      = "billing"
  name     = "Workers"
  path     = "jobs"
  strategy = "round-robin"
  endpoint {
    name   = "a"
    url    = "https://a.example.com/?x=1"
    weight = 101
  }
  endpoint {
    name   = "b"
    url    = "https://{{.Job}}.example.com"
    weight = 0
  }
  probe {
    alive_path = "healthz"
    timeout    = "0s"
  }
  dns {
    name     = "a"
    hostname = "10.0.0.1"
    scheme   = "ftp"
    weight   = 0
  }
  dns {
    name     = "b"
    hostname = "_http._tcp.example.internal"
    type     = "SRV"
    port     = 8080
  }
  health_check {
    path              = "healthz"
    interval          = "10ms"
    healthy_threshold = 11
  }
  eject_after = 1.5
  registration {
    networks     = ["10.0.0.0/16", "10.1.0.0"]
    ports        = [8080, 70000, 1.5]
    heartbeat    = "1m"
    expire_after = "90s"
  }
  auth {
    bearer {
      token {
        reference = "env:HOME"
      }
    }
    basic {
      username = "carillon"
      password {
        reference = "env:SECRET_BILLING"
      }
    }
  }
}

resource "carillon_job" "nightly" {
  app  = "billing"
  name = "nightly"
  target {
    group {
      name     = "workers"
      path     = "nightly"
      strategy = "failovr"
    }
  }
}
