data "carillon_schedule" "payroll" {
  expression = "0 0 8 1 * ?"
  timezone   = "Europe/Berlin"
  fires      = 3
}

output "payroll" {
  value = {
    meaning = data.carillon_schedule.payroll.description
    next    = data.carillon_schedule.payroll.local_times
  }
}
