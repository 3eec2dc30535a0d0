resource "carillon_alert" "nothing" {
  app  = "billing"
  name = "Nothing"
  jobs = ["nightly", "nightly"]

  mute {
    from = "2027-12-24T00:00:00Z"
  }

  destination {
    webhook {
      url    = "https://hooks.slack.com/services/T0/B0/canary"
      format = "slak"
    }
  }
}

resource "carillon_alert" "wrong_message" {
  app  = "billing"
  name = "message"

  failure {
    after = 1.5
  }
  late_after = "1ms"

  destination {
    webhook {
      url    = "https://example.com/"
      method = "GET"
      format = "template"
      body   = "{\"why\": \"{{.Error}}\"}"

      routing_key {
        reference = "env:SECRET_KEY"
      }
    }
  }
}
