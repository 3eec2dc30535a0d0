# A job as a platform team wraps it: with any number of triggers.
terraform {
  required_providers {
    carillon = { source = "carillon-dev/carillon" }
  }
}

variable "app" {
  type = string
}

variable "name" {
  type = string
}

variable "triggers" {
  type = map(object({
    expression = string
    timezone   = optional(string, "Europe/Berlin")
    jitter     = optional(string)
  }))
  default = {}
}

resource "carillon_job" "j" {
  app  = var.app
  name = var.name
  target {
    webhook {
      url = "https://example.com/hook"
    }
  }
  dynamic "trigger" {
    for_each = var.triggers
    content {
      name       = trigger.key
      expression = trigger.value.expression
      timezone   = trigger.value.timezone
      jitter     = trigger.value.jitter
    }
  }
}

output "next_fire_times" {
  value = keys(carillon_job.j.next_fire_times)
}
