output "database_address" {
  description = "Host name of the database."
  value       = aws_db_instance.this.address
}

output "database_admin_secret_arn" {
  description = "Secret with the password of the database's master user."
  value       = aws_db_instance.this.master_user_secret[0].secret_arn
}

output "machines" {
  description = "Lists the machines of the group."
  value       = "aws autoscaling describe-auto-scaling-groups --auto-scaling-group-names ${module.carillon.autoscaling_group_name} --query 'AutoScalingGroups[0].Instances[].[InstanceId,LifecycleState]' --output text"
}

output "carillon" {
  description = "All outputs of the module."
  value       = module.carillon
}
