resource "carillon_app" "billing" {
  name        = "billing"
  description = "Invoices and reminders"
  retention   = "2160h" # 90 days of history
}
