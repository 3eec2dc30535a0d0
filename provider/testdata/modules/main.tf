resource "carillon_app" "crm" {
  name = "crm"
}

# From a variable, with a value from terraform.tfvars.
variable "schedules" {
  type = map(string)
}

resource "carillon_job" "variable" {
  app  = carillon_app.crm.name
  name = "variable"
  target {
    webhook {
      url = "https://example.com/hook"
    }
  }
  dynamic "trigger" {
    for_each = var.schedules
    content {
      name       = trigger.key
      expression = trigger.value
      timezone   = "UTC"
    }
  }
}

# From each.value, of a file.
locals {
  jobs = yamldecode(file("${path.module}/jobs.yaml"))
}

resource "carillon_job" "each" {
  for_each = local.jobs
  app      = carillon_app.crm.name
  name     = "each-${each.key}"
  target {
    webhook {
      url = "https://example.com/hook"
    }
  }
  dynamic "trigger" {
    for_each = each.value.triggers
    content {
      name       = trigger.key
      expression = trigger.value.expression
      timezone   = try(trigger.value.timezone, "Europe/Berlin")
    }
  }
}

# From a module with a literal map, and from modules in three levels.
module "literal" {
  source = "./job"
  app    = carillon_app.crm.name
  name   = "literal"
  triggers = {
    a = { expression = "@daily" }
    b = { expression = "rate(5 minutes)", timezone = null }
  }
}

module "teams" {
  source   = "./team"
  for_each = { sales = local.jobs }
  app      = carillon_app.crm.name
  jobs     = { for name, job in each.value : "${each.key}-${name}" => job }
}
