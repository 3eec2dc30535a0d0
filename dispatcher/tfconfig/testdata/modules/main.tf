# The jobs of an app, in each way in which modules and files of values can give them.

variable "zone" {
  type    = string
  default = "Mars/Olympus" # terraform.tfvars has another
}

variable "reports" {
  type = map(object({
    hour   = number
    minute = optional(number, 30)
  }))
}

locals {
  jobs = yamldecode(file("${path.module}/jobs.yaml"))
}

resource "carillon_app" "shop" {
  name             = "shop"
  default_timezone = var.zone
}

resource "carillon_job" "yaml" {
  for_each = local.jobs
  app      = carillon_app.shop.name
  name     = each.key
  target {
    webhook {
      url     = each.value.url
      timeout = try(each.value.timeout, null)
    }
  }
  dynamic "trigger" {
    for_each = each.value.triggers
    content {
      name       = trigger.key
      expression = trigger.value
    }
  }
}

module "nightly" {
  source = "./job"
  app    = carillon_app.shop.name
  name   = "nightly"
  triggers = {
    a = { expression = "@daily" }
  }
}

module "reports" {
  source   = "./job"
  for_each = var.reports
  app      = carillon_app.shop.name
  name     = "report-${each.key}"
  triggers = {
    daily = { expression = "0 ${each.value.minute} ${each.value.hour} * * ?" }
  }
}

module "shards" {
  source   = "./job"
  count    = 2
  app      = carillon_app.shop.name
  name     = "shard-${count.index}"
  follow   = module.nightly.name
  triggers = { often = { expression = "rate(5m)", enabled = false } }
}

module "team" {
  source = "./team"
  app    = carillon_app.shop.name
}
