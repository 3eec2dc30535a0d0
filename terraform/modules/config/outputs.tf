output "environment" {
  description = "Variables of the node by name, none of them secret."
  value       = tomap(local.environment)
}

output "secrets" {
  description = "Variables of the node whose values are in Secrets Manager: ARN by name, as ECS takes it in valueFrom."
  value       = tomap(local.secrets)
}

output "secret_arns" {
  description = "The secrets that nodes read, without the JSON keys: what a policy has to allow."
  value       = toset([for arn in values(local.secrets) : join(":", slice(split(":", arn), 0, 7))])
}

output "database_user" {
  description = "User in the URL of the database; null for SQLite."
  value       = local.postgres ? local.database.user : null
}

output "database_host" {
  description = "Host in the URL of the database; null for SQLite."
  value       = local.postgres ? local.database.host : null
}

output "database_port" {
  description = "Port in the URL of the database, 5432 unless it has one; null for SQLite."
  value       = local.postgres ? tonumber(coalesce(local.database.port, "5432")) : null
}

output "vault_port" {
  description = "Port in the address of Vault, 443 unless it has one; null without Vault."
  value       = var.vault == null ? null : try(tonumber(regex("^https://[^/]*:([0-9]+)(?:/|$)", var.vault.address)[0]), 443)
}

output "port" {
  description = "Port of the HTTP API."
  value       = tonumber(element(split(":", var.listen), length(split(":", var.listen)) - 1))
}
