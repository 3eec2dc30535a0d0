variable "app" {
  type = string
}

variable "name" {
  type = string
}

variable "hours" {
  type = map(number)
}

module "team" {
  source   = "../team"
  for_each = toset([for t in range(10) : "${var.name}-t${t}"])
  app      = var.app
  name     = each.key
  hour     = lookup(var.hours, each.key, 2)
}
