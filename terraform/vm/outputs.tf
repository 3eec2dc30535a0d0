output "autoscaling_group_name" {
  description = "Name of the autoscaling group."
  value       = aws_autoscaling_group.this.name
}

output "autoscaling_group_arn" {
  description = "ARN of the autoscaling group."
  value       = aws_autoscaling_group.this.arn
}

output "launch_template_id" {
  description = "The launch template of the instances."
  value       = aws_launch_template.this.id
}

output "ami_id" {
  description = "The image that new instances start from; give it as ami_id to stay with it."
  value       = nonsensitive(aws_launch_template.this.image_id)
}

output "security_group_id" {
  description = "The security group of the instances, for a database to let in."
  value       = module.network.security_group_id
}

output "role_arn" {
  description = "The role of the instances, for a function or a role of another account to trust."
  value       = aws_iam_role.this.arn
}

output "role_name" {
  description = "Name of this role."
  value       = aws_iam_role.this.name
}

output "log_group_name" {
  description = "The log group; null without log_agent."
  value       = one(aws_cloudwatch_log_group.this[*].name)
}

output "alarm_arns" {
  description = "ARNs of the alarms by what they tell; empty without log_agent."
  value       = try(module.alarms[0].arns, {})
}

output "port" {
  description = "Port of the HTTP API on each instance."
  value       = local.port
}

output "cloud_config" {
  description = "What the instances are told at their first boot, as text. It holds no secret."
  value       = module.cloud_init.cloud_config
}
