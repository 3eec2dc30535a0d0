resource "carillon_app" "finance" {
  name = "finance"
}

resource "carillon_endpoint_group" "billing" {
  app      = carillon_app.finance.name
  name     = "billing"
  kind     = "xxl_job"
  app_name = "billing-executor"

  access_token {
    value         = "CANARY-of-executors-1234"
    value_version = "1"
  }

  registration {
    networks = ["10.0.0.0/16"]
    ports    = [9999]
  }
}

resource "carillon_job" "invoices" {
  app  = carillon_app.finance.name
  name = "invoices"
  target {
    group {
      name = carillon_endpoint_group.billing.name
      xxl_job {
        handler          = "invoiceJobHandler"
        param            = "monthly"
        callback_timeout = "2d"
      }
    }
  }
}
