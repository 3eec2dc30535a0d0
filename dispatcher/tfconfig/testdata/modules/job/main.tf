variable "app" {
  type = string
}

variable "name" {
  type = string
}

variable "follow" {
  type    = string
  default = null
}

variable "triggers" {
  type = map(object({
    expression = string
    enabled    = optional(bool, true)
    timezone   = optional(string)
  }))
}

resource "carillon_job" "j" {
  app  = var.app
  name = var.name
  target {
    webhook { url = "https://example.com/${var.name}" }
  }
  dynamic "trigger" {
    for_each = var.triggers
    content {
      name       = trigger.key
      expression = trigger.value.expression
      enabled    = trigger.value.enabled
      timezone   = trigger.value.timezone
    }
  }
  dynamic "on_success" {
    for_each = var.follow == null ? [] : [var.follow]
    content {
      jobs = [on_success.value]
    }
  }
}

module "alert" {
  source = "./alert"
  count  = var.follow == null ? 0 : 1
  app    = var.app
  job    = carillon_job.j.name
}

output "name" {
  value = carillon_job.j.name
}
