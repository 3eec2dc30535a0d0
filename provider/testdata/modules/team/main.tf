# The jobs of a team: a module that calls a module.
variable "app" {
  type = string
}

variable "jobs" {
  type = any
}

module "job" {
  source   = "../job"
  for_each = var.jobs
  app      = var.app
  name     = each.key
  triggers = each.value.triggers
}
