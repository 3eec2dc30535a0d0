# 40 jobs of a file, with the defaults of their app and the labels of the provider.
locals {
  file   = yamldecode(file("${path.module}/jobs.yaml"))
  copies = { for i in range(8) : i => { for name, job in local.file : "${name}-${i}" => job } }
  jobs   = merge(values(local.copies)...)
}

resource "carillon_app" "crm" {
  name             = "crm"
  default_timezone = "Europe/Berlin"
  default_retry {
    max_attempts = 3
  }
}

resource "carillon_job" "each" {
  for_each = local.jobs
  app      = carillon_app.crm.name
  name     = each.key
  labels   = try(each.value.labels, null)
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
