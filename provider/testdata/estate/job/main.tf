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
  type = map(string)
}

resource "carillon_job" "j" {
  app  = var.app
  name = var.name
  target {
    webhook {
      url = "https://example.com/${var.name}"
    }
  }
  dynamic "trigger" {
    for_each = var.triggers
    content {
      name       = trigger.key
      expression = trigger.value
    }
  }
}
