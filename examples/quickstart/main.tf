# Three jobs that call a receiver on this machine. "make dev" applies them. To apply them yourself,
# start a node with --egress-loopback, set CARILLON_ENDPOINT and CARILLON_TOKEN (created by
# "carillon token create"), and run "terraform apply". If you built the provider here instead of
# installing it, TF_CLI_CONFIG_FILE must name a file that says where it is; see docs/how-to/run-nodes.md.

terraform {
  required_providers {
    carillon = {
      source = "carillon-dev/carillon"
    }
  }
}

# Endpoint and token come from CARILLON_ENDPOINT and CARILLON_TOKEN.
provider "carillon" {}

# An app is a namespace of jobs. While its enabled is false, none of them fires.
resource "carillon_app" "quickstart" {
  name        = "quickstart"
  description = "Jobs that ring a receiver on this machine"
}

# An interval counts elapsed time from the moment the job is created.
resource "carillon_job" "heartbeat" {
  app  = carillon_app.quickstart.name
  name = "heartbeat"

  target {
    webhook {
      url     = "${var.receiver_url}/heartbeat"
      timeout = "5s"
    }
  }

  # Any JSON. It is the body of the request.
  payload = jsonencode({ hello = "from Terraform" })

  # A job can have many triggers. You choose their names.
  trigger {
    name       = "often"
    expression = var.heartbeat_expression
    timezone   = "UTC"
  }
}

# A Quartz expression: seconds come first, and one of the two day fields is "?".
resource "carillon_job" "poll" {
  app  = carillon_app.quickstart.name
  name = "poll"

  target {
    webhook {
      url     = "${var.receiver_url}/poll"
      headers = { "X-Example" = "quickstart" }
    }
  }

  trigger {
    name       = "five_seconds"
    expression = "0/5 * * * * ?"
    timezone   = "UTC"
  }
}

# A Unix cron expression, in the local time of a time zone.
resource "carillon_job" "minutely" {
  app  = carillon_app.quickstart.name
  name = "minutely"

  target {
    webhook {
      url = "${var.receiver_url}/minutely"
    }
  }

  trigger {
    name       = "each_minute"
    expression = "* * * * *"
    timezone   = "Europe/Berlin"
  }
}

# A single instant, created only on request:
# terraform apply -var one_shot_at=2030-01-01T00:00:00Z
resource "carillon_job" "once" {
  count = var.one_shot_at == null ? 0 : 1

  app  = carillon_app.quickstart.name
  name = "once"

  target {
    webhook {
      url = "${var.receiver_url}/once"
    }
  }

  trigger {
    name       = "once"
    expression = "at(${var.one_shot_at})"
  }
}
