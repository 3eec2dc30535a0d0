# 1,000 jobs of modules in three levels: ten divisions, each of ten teams, each of ten jobs.
variable "hours" {
  type    = map(number)
  default = {}
}

resource "carillon_app" "estate" {
  name             = "estate"
  default_timezone = "UTC"
}

module "division" {
  source   = "./division"
  for_each = toset([for d in range(10) : "d${d}"])
  app      = carillon_app.estate.name
  name     = each.key
  hours    = var.hours
}
