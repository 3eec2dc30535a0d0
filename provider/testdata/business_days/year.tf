locals {
  months   = [for month in range(1, 13) : format("2033-%02d", month)]
  triggers = { for trigger in carillon_job.run.trigger : trigger.name => trigger }
}

# The fires of each trigger in each month. A month has at most 23 business days.
data "carillon_schedule" "month" {
  for_each = {
    for pair in setproduct(keys(local.triggers), local.months) :
    "${pair[0]} ${pair[1]}" => { trigger = local.triggers[pair[0]], month = pair[1] }
  }
  app         = carillon_app.payroll.name
  expression  = each.value.trigger.expression
  timezone    = each.value.trigger.timezone
  calendar    = each.value.trigger.calendar
  on_excluded = each.value.trigger.on_excluded
  from        = "${each.value.month}-01T00:00:00Z"
  fires       = 25
}

output "fires" {
  value = {
    for trigger in keys(local.triggers) : trigger => flatten([
      for month in local.months : [
        for at in data.carillon_schedule.month["${trigger} ${month}"].local_times : at if substr(at, 4, 7) == month
      ]
    ])
  }
}

output "next" {
  value = carillon_job.run.next_fire_times
}
