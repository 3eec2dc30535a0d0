resource "carillon_app" "crm" {
  name = "crm"
}

resource "carillon_job" "migration" {
  app  = carillon_app.crm.name
  name = "migration"

  delete_after_completion = "24h"
  target {
    webhook {
      url = "https://example.com/migrate"
    }
  }
  trigger {
    name       = "local"
    expression = "at(2099-05-01T10:00:00)"
  }
  trigger {
    name       = "past"
    expression = "at(2020-05-01T10:00:00Z)"
  }
  trigger {
    name       = "utc"
    expression = "at(2099-05-01T10:00:00Z)"
  }
}
