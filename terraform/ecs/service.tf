resource "aws_ecs_cluster" "this" {
  count = var.create_cluster ? 1 : 0

  name = var.name
  tags = local.tags

  setting {
    name  = "containerInsights"
    value = var.container_insights
  }
}

resource "aws_ecs_cluster_capacity_providers" "this" {
  count = var.create_cluster ? 1 : 0

  cluster_name       = aws_ecs_cluster.this[0].name
  capacity_providers = ["FARGATE", "FARGATE_SPOT"]
}

resource "aws_ecs_service" "this" {
  name            = var.name
  cluster         = var.create_cluster ? aws_ecs_cluster.this[0].arn : var.cluster_arn
  task_definition = aws_ecs_task_definition.this.arn
  desired_count   = var.autoscaling_min_capacity # of the first day; see the end

  # New before old: a new node is healthy before an old one gets SIGTERM.
  deployment_minimum_healthy_percent = 100
  deployment_maximum_percent         = 200
  availability_zone_rebalancing      = "ENABLED"
  wait_for_steady_state              = var.wait_for_steady_state
  enable_execute_command             = false # the image has no shell
  enable_ecs_managed_tags            = true
  propagate_tags                     = "SERVICE"
  tags                               = local.tags
  health_check_grace_period_seconds  = var.load_balancer == null ? null : 60

  deployment_circuit_breaker {
    enable   = true
    rollback = true
  }

  # The alarms dead-man and saturated say nothing about the new version, and a rolled back database less.
  alarms {
    enable      = var.deployment_alarms_rollback
    rollback    = var.deployment_alarms_rollback
    alarm_names = [module.alarms.names["overdue"], module.alarms.names["database-unreachable"]]
  }

  dynamic "capacity_provider_strategy" {
    for_each = var.capacity_provider_strategy
    content {
      capacity_provider = capacity_provider_strategy.key
      weight            = capacity_provider_strategy.value.weight
      base              = capacity_provider_strategy.value.base
    }
  }

  network_configuration {
    subnets          = var.subnet_ids
    security_groups  = concat([module.network.security_group_id], var.security_group_ids)
    assign_public_ip = var.assign_public_ip
  }

  dynamic "load_balancer" {
    for_each = aws_lb_target_group.this
    content {
      target_group_arn = load_balancer.value.arn
      container_name   = local.container.name
      container_port   = module.config.port
    }
  }

  dynamic "service_registries" {
    for_each = aws_service_discovery_service.this
    content {
      registry_arn = service_registries.value.arn
    }
  }

  depends_on = [aws_lb_listener.this, aws_ecs_cluster_capacity_providers.this]

  lifecycle {
    # Autoscaling sets it; for a fixed number its bounds are the same.
    ignore_changes = [desired_count]

    precondition {
      condition     = var.development || length(module.subnets.zones) >= 2
      error_message = "The subnets are all in the zone ${join(", ", module.subnets.zones)}: nothing would fire while it is down. Name subnets of two zones, or set development = true."
    }

    precondition {
      condition     = alltrue([for id in module.subnets.vpc_ids : id == var.vpc_id])
      error_message = "A subnet in subnet_ids is not in the VPC ${var.vpc_id}."
    }
  }
}

resource "aws_service_discovery_service" "this" {
  count = var.service_discovery == null ? 0 : 1

  name        = var.name
  description = "Nodes of the Carillon fleet ${var.name}"
  tags        = local.tags

  dns_config {
    namespace_id   = var.service_discovery.namespace_id
    routing_policy = "MULTIVALUE"

    dns_records {
      type = "A"
      ttl  = 10
    }
  }
}
