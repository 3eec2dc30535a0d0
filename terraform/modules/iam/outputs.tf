output "task_policy" {
  description = "What nodes do themselves, as JSON; null if that is nothing."
  value       = local.policies.task
}

output "execution_policy" {
  description = "What the agent of ECS does to start a node, as JSON; null if that is nothing."
  value       = local.policies.execution
}

output "node_policy" {
  description = "Both in one, as JSON, for machines, where the node and what starts it share a role; null if that is nothing."
  value       = local.policies.node
}

output "assume_role_policy" {
  description = "Who may take the role, as JSON."
  value = jsonencode({
    Version = "2012-10-17"
    Statement = [merge({
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = var.assumed_by }
    }, local.source)]
  })
}
