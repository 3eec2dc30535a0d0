data "carillon_app" "billing" {
  name = "billing"
}

# A trust policy that demands this external id trusts nodes only when they act for this app.
output "external_id" {
  value = data.carillon_app.billing.aws_external_id
}
