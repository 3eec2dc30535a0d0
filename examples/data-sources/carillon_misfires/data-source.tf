data "carillon_misfires" "latest" {
  app   = "billing"
  from  = "2026-11-01T00:00:00Z"
  limit = 20
}

output "missed" {
  value = [for m in data.carillon_misfires.latest.misfires : "${m.job}/${m.trigger}: ${m.count} fires, ${m.decision}, ${m.reason}"]
}
