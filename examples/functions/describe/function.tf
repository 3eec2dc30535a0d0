variable "report_schedule" {
  type    = string
  default = "0 30 2 ? * MON-FRI"

  validation {
    condition     = can(provider::carillon::describe(var.report_schedule, "Europe/Berlin"))
    error_message = "This is not a schedule that Carillon reads."
  }
}

output "report_schedule" {
  value = provider::carillon::describe(var.report_schedule, "Europe/Berlin")
}
