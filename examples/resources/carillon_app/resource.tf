resource "carillon_app" "billing" {
  name        = "billing"
  description = "Invoices and reminders"
}
