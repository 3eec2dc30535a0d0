locals {
  hour = 2
}

resource "carillon_app" "shops" {
  name             = "shops"
  default_timezone = "Europe/Berlin"
}

# One job for each of 60 shops.
resource "carillon_job" "orders" {
  for_each = toset([for number in range(60) : format("shop-%02d", number)])
  app      = carillon_app.shops.name
  name     = each.key
  target {
    webhook {
      url = "https://${each.key}.example.com/orders"
    }
  }
  trigger {
    name       = "nightly"
    expression = "0 30 ${local.hour} * * ?"
    start_at   = "2033-01-01T00:00:00Z"
  }
}
