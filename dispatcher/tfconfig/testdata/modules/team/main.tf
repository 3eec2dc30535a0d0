variable "app" {}

module "purge" {
  source   = "../job"
  app      = var.app
  name     = "purge"
  triggers = { t = { expression = "0 0 4 * * ?" } }
}
