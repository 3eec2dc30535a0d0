variable "app" {
  type = string
}

variable "name" {
  type = string
}

variable "hour" {
  type = number
}

module "job" {
  source   = "../job"
  for_each = toset([for j in range(10) : "${var.name}-j${j}"])
  app      = var.app
  name     = each.key
  triggers = { nightly = "H ${var.hour} * * *" }
}
