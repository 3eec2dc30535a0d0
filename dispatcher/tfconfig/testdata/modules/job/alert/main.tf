variable "app" {}
variable "job" {}

resource "carillon_alert" "a" {
  app    = var.app
  name   = "${var.job}-missed"
  jobs   = [var.job]
  missed = true
  destination {
    webhook { url = "https://oncall.example.com/" }
  }
}
