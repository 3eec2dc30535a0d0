output "database_address" {
  description = "Host name of the database."
  value       = aws_db_instance.this.address
}

output "database_admin_secret_arn" {
  description = "Secret with the password of the database's master user."
  value       = aws_db_instance.this.master_user_secret[0].secret_arn
}

output "carillon" {
  description = "All outputs of the module: endpoint, names of cluster, service and log group, security group, roles."
  value       = module.carillon
}
