data "carillon_endpoints" "workers" {
  app   = "billing"
  group = "workers"
}

output "workers" {
  value = { for e in data.carillon_endpoints.workers.endpoints : e.id => e.url if !e.draining }
}
