variable "app" {}

module "tidy" {
  source   = "../job"
  app      = var.app
  name     = "tidy"
  triggers = { t = { expression = "0 0 4 * * ?" } }
}
