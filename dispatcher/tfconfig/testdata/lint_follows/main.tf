resource "carillon_app" "shop" { name = "shop" }

locals {
  hook = "https://example.com/hook"
}

resource "carillon_job" "load" {
  app  = carillon_app.shop.name
  name = "load"
  target {
    webhook { url = local.hook }
  }
  on_success {
    jobs    = [carillon_job.report.name, "tydi", "load"]
    payload = "results"
  }
  on_failure {
    webhook { url = "ftp://example.com" }
  }
  on_misfire {}
}

# report and publish follow one another.
resource "carillon_job" "report" {
  app  = carillon_app.shop.name
  name = "report"
  target {
    webhook { url = local.hook }
  }
  on_success {
    jobs = ["publish"]
  }
}

resource "carillon_job" "publish" {
  app  = carillon_app.shop.name
  name = "publish"
  target {
    webhook { url = local.hook }
  }
  on_success {
    jobs = ["tidy"]
  }
  on_failure {
    jobs = ["tidy", "report"]
    group { name = "workers" }
  }
}

resource "carillon_job" "tidy" {
  app  = carillon_app.shop.name
  name = "tidy"
  target {
    webhook { url = local.hook }
  }
}

# Jobs of an app that no file declares may be elsewhere.
resource "carillon_job" "elsewhere" {
  app  = "other"
  name = "elsewhere"
  target {
    webhook { url = local.hook }
  }
  on_success {
    jobs = ["unheard-of"]
  }
}

# Deliveries are within the bounds of the app, as the targets of jobs are.
resource "carillon_app" "bounded" {
  name = "bounded"
  bounds {
    egress { hosts = ["example.com"] }
  }
}

resource "carillon_job" "bounded" {
  app  = carillon_app.bounded.name
  name = "bounded"
  target {
    webhook { url = local.hook }
  }
  on_failure {
    webhook { url = "https://elsewhere.example.org/" }
  }
}

# The names of alerts are checked, too.
resource "carillon_alert" "night" {
  app    = carillon_app.shop.name
  name   = "night"
  missed = true
  destination {
    webhook { url = local.hook }
  }
}

resource "carillon_job" "naming" {
  app  = carillon_app.shop.name
  name = "naming"
  target {
    webhook { url = local.hook }
  }
  on_success {
    alert = "night"
  }
  on_failure {
    alert = "nihgt"
  }
}
