# Three jobs that ring a local receiver. "make dev" applies this; by hand, set
# CARILLON_ENDPOINT and CARILLON_TOKEN (made by "carillon token create") and run
# "terraform apply", with a node that was started with --egress-loopback. A provider that was built here rather than installed is found by a file
# that TF_CLI_CONFIG_FILE names; see docs/how-to/run-nodes.md.

terraform {
  required_providers {
    carillon = {
      source = "carillon-dev/carillon"
    }
  }
}

# Endpoint and token come from CARILLON_ENDPOINT and CARILLON_TOKEN.
provider "carillon" {}

# An app is a namespace of jobs. With enabled = false none of them fires until it is true again.
resource "carillon_app" "quickstart" {
  name        = "quickstart"
  description = "Jobs that ring a receiver on this machine"
}

# An interval measures elapsed time from when it is declared.
resource "carillon_job" "heartbeat" {
  app  = carillon_app.quickstart.name
  name = "heartbeat"

  target = {
    webhook = {
      url     = "${var.receiver_url}/heartbeat"
      timeout = "5s"
    }
  }

  # Any JSON; it becomes the body of the request.
  payload = jsonencode({ hello = "from Terraform" })

  # The name of a trigger is yours to choose; a job may have many.
  triggers = {
    often = {
      expression = var.heartbeat_expression
    }
  }
}

# Quartz: seconds come first, and one of the two day fields is "?".
resource "carillon_job" "poll" {
  app  = carillon_app.quickstart.name
  name = "poll"

  target = {
    webhook = {
      url     = "${var.receiver_url}/poll"
      headers = { "X-Example" = "quickstart" }
    }
  }

  triggers = {
    five_seconds = {
      expression = "0/5 * * * * ?"
    }
  }
}

# Unix cron, by the wall clock of a time zone.
resource "carillon_job" "minutely" {
  app  = carillon_app.quickstart.name
  name = "minutely"

  target = {
    webhook = {
      url = "${var.receiver_url}/minutely"
    }
  }

  triggers = {
    each_minute = {
      expression = "* * * * *"
      timezone   = "Europe/Berlin"
    }
  }
}

# One instant, if there is one: terraform apply -var one_shot_at=2030-01-01T00:00:00Z
resource "carillon_job" "once" {
  count = var.one_shot_at == null ? 0 : 1

  app  = carillon_app.quickstart.name
  name = "once"

  target = {
    webhook = {
      url = "${var.receiver_url}/once"
    }
  }

  triggers = {
    once = {
      expression = "at(${var.one_shot_at})"
    }
  }
}
