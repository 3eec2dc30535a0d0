data "carillon_alert" "on_call" {
  app  = "billing"
  name = "on-call"
}

output "conditions_that_hold" {
  value = data.carillon_alert.on_call.firing
}
