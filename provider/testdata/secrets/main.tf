variable "signing" {
  type      = string
  ephemeral = true
}

variable "token" {
  type      = string
  ephemeral = true
}

resource "carillon_app" "crm" {
  name             = "crm"
  default_timezone = "Europe/Berlin"
}

resource "carillon_job" "nightly" {
  app  = carillon_app.crm.name
  name = "nightly"
  target {
    webhook {
      url = "https://crm.example.com/nightly"
      signing {
        secret {
          name          = "current"
          value         = var.signing
          value_version = 1
        }
        secret {
          name      = "next"
          reference = "env:SECRET_CRM_NEXT"
        }
      }
      auth {
        bearer {
          token {
            value         = var.token
            value_version = 1
          }
        }
      }
    }
  }
  trigger {
    name       = "nightly"
    expression = "0 30 4 * * ?"
  }
}
