output "endpoint" {
  description = "Address of the API and the console for the provider: the load balancer's, else that of service discovery; null without both."
  value = (
    var.load_balancer != null ? "https://${var.load_balancer.domain_name}" :
    var.service_discovery != null ? "http://${var.name}.${var.service_discovery.namespace_name}:${module.config.port}" : null
  )
}

output "load_balancer" {
  description = "DNS name, hosted zone and ARN of the load balancer, for the record of its domain name; null without one."
  value = var.load_balancer == null ? null : {
    dns_name = aws_lb.this[0].dns_name
    zone_id  = aws_lb.this[0].zone_id
    arn      = aws_lb.this[0].arn
  }
}

output "security_group_id" {
  description = "Security group of the nodes: allow it in the database's."
  value       = module.network.security_group_id
}

output "task_role_arn" {
  description = "Role of the nodes: name it in policies of functions, roles and queues that they use."
  value       = aws_iam_role.task.arn
}

output "execution_role_arn" {
  description = "Role that starts the nodes: name it in policies of secrets and keys."
  value       = aws_iam_role.execution.arn
}

output "cluster_name" {
  description = "Name of the ECS cluster."
  value       = local.cluster_name
}

output "service_name" {
  description = "Name of the ECS service."
  value       = aws_ecs_service.this.name
}

output "task_definition_arn" {
  description = "The task definition of the nodes, with which you can run other commands, such as \"carillon token create\"."
  value       = aws_ecs_task_definition.this.arn
}

output "log_group_name" {
  description = "Log group of the nodes."
  value       = aws_cloudwatch_log_group.this.name
}

output "alarm_arns" {
  description = "ARNs of the alarms by what they tell: dead-man, overdue, rolled-back, saturated, database-unreachable."
  value       = module.alarms.arns
}
