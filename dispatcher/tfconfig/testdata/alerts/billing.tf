import {
  to = carillon_app.billing
  id = "billing"
}

resource "carillon_app" "billing" {
  name = "billing"
}

import {
  to = carillon_alert._9-every
  id = "billing/9-every"
}

resource "carillon_alert" "_9-every" {
  app         = carillon_app.billing.name
  name        = "9-every"
  description = "all of $${it}"
  jobs        = ["nightly"]
  blocked     = true
  labels = {
    tier = "critical"
  }
  late_after     = "5m"
  missed         = true
  no_success_for = "26h"
  objective      = true
  overrun_after  = "2h"
  recovery       = false

  destination {
    webhook {
      url      = "https://events.pagerduty.com/v2/enqueue"
      format   = "pagerduty"
      severity = "info"

      routing_key {
        reference = "file:billing/pagerduty"
      }
    }
  }

  retry {
    cap          = "15m"
    max_attempts = 5
  }

  failure {
    after        = 3
    repeat_every = 10
  }

  mute {
    timezone = "Europe/Berlin"
    duration = "8h"
    schedule = "0 22 * * *"
  }

  mute {
    from = "2027-12-24T00:00:00Z"
    to   = "2027-12-27T00:00:00Z"
  }
}

import {
  to = carillon_alert.channel
  id = "billing/channel"
}

resource "carillon_alert" "channel" {
  app  = carillon_app.billing.name
  name = "channel"

  destination {
    webhook {
      url    = "https://hooks.slack.com/"
      format = "slack"

      secret_url {
        value = var.secret_channel_secret_url
      }
    }
  }

  failure {
  }
}

variable "secret_channel_secret_url" {
  type      = string
  sensitive = true
  ephemeral = true
}

import {
  to = carillon_alert.topic
  id = "billing/topic"
}

resource "carillon_alert" "topic" {
  app  = carillon_app.billing.name
  name = "topic"

  destination {
    sns {
      topic_arn = "arn:aws:sns:eu-central-1:123456789012:on-call"
    }
  }

  failure {
  }
}
