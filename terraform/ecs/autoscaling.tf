# The signal is how much of the nodes' capacity is in use, not their processors: a node that waits for slow
# targets has an idle processor and no worker left.

resource "aws_appautoscaling_target" "this" {
  service_namespace  = "ecs"
  scalable_dimension = "ecs:service:DesiredCount"
  resource_id        = "service/${local.cluster_name}/${aws_ecs_service.this.name}"
  min_capacity       = var.autoscaling_min_capacity
  max_capacity       = var.autoscaling_max_capacity
  tags               = local.tags
}

# Out within some three minutes. In slowly: after 15 minutes below the target, and then ten minutes a step.
resource "aws_appautoscaling_policy" "pool_use" {
  name               = "${var.name}-pool-use"
  policy_type        = "TargetTrackingScaling"
  service_namespace  = aws_appautoscaling_target.this.service_namespace
  scalable_dimension = aws_appautoscaling_target.this.scalable_dimension
  resource_id        = aws_appautoscaling_target.this.resource_id

  target_tracking_scaling_policy_configuration {
    target_value       = var.autoscaling_pool_use
    scale_out_cooldown = 60
    scale_in_cooldown  = 600

    customized_metric_specification {
      namespace   = "Carillon"
      metric_name = "PoolUse"
      statistic   = "Average"

      dimensions {
        name  = "Fleet"
        value = var.name
      }
    }
  }
}

# Fires wait although no average shows it: half as many nodes again at once, twice as many if it is bad.
resource "aws_appautoscaling_policy" "overdue" {
  name               = "${var.name}-overdue"
  policy_type        = "StepScaling"
  service_namespace  = aws_appautoscaling_target.this.service_namespace
  scalable_dimension = aws_appautoscaling_target.this.scalable_dimension
  resource_id        = aws_appautoscaling_target.this.resource_id

  step_scaling_policy_configuration {
    adjustment_type          = "PercentChangeInCapacity"
    metric_aggregation_type  = "Maximum"
    min_adjustment_magnitude = 1
    cooldown                 = 120

    step_adjustment {
      metric_interval_lower_bound = 0
      metric_interval_upper_bound = 20
      scaling_adjustment          = 50
    }

    step_adjustment {
      metric_interval_lower_bound = 20
      scaling_adjustment          = 100
    }
  }
}

resource "aws_cloudwatch_metric_alarm" "scale_out_overdue" {
  alarm_name          = "${var.name}-scale-out-overdue"
  alarm_description   = "Adds nodes to ${var.name}. It is no reason to wake anybody; the alarm ${var.name}-overdue is."
  namespace           = "Carillon"
  metric_name         = "OldestOverdue"
  dimensions          = { Fleet = var.name }
  statistic           = "Maximum"
  comparison_operator = "GreaterThanThreshold"
  threshold           = var.autoscaling_overdue_seconds
  period              = 60
  evaluation_periods  = 1
  treat_missing_data  = "notBreaching"
  alarm_actions       = [aws_appautoscaling_policy.overdue.arn]
  tags                = local.tags
}

# A herd is known before it comes.
resource "aws_appautoscaling_policy" "upcoming" {
  count = var.autoscaling_upcoming_fires == null ? 0 : 1

  name               = "${var.name}-upcoming"
  policy_type        = "StepScaling"
  service_namespace  = aws_appautoscaling_target.this.service_namespace
  scalable_dimension = aws_appautoscaling_target.this.scalable_dimension
  resource_id        = aws_appautoscaling_target.this.resource_id

  step_scaling_policy_configuration {
    adjustment_type         = "ChangeInCapacity"
    metric_aggregation_type = "Maximum"
    cooldown                = 900 # one herd is counted for 15 minutes

    step_adjustment {
      metric_interval_lower_bound = 0
      scaling_adjustment          = var.autoscaling_upcoming_fires.add
    }
  }
}

resource "aws_cloudwatch_metric_alarm" "scale_out_upcoming" {
  count = var.autoscaling_upcoming_fires == null ? 0 : 1

  alarm_name          = "${var.name}-scale-out-upcoming"
  alarm_description   = "Adds nodes to ${var.name} ahead of many fires. It is no reason to wake anybody."
  namespace           = "Carillon"
  metric_name         = "UpcomingFires"
  dimensions          = { Fleet = var.name }
  statistic           = "Maximum"
  comparison_operator = "GreaterThanThreshold"
  threshold           = var.autoscaling_upcoming_fires.fires
  period              = 60
  evaluation_periods  = 1
  treat_missing_data  = "notBreaching"
  alarm_actions       = [aws_appautoscaling_policy.upcoming[0].arn]
  tags                = local.tags
}

resource "aws_appautoscaling_scheduled_action" "this" {
  for_each = var.autoscaling_scheduled_actions

  name               = "${var.name}-${each.key}"
  service_namespace  = aws_appautoscaling_target.this.service_namespace
  scalable_dimension = aws_appautoscaling_target.this.scalable_dimension
  resource_id        = aws_appautoscaling_target.this.resource_id
  schedule           = each.value.schedule
  timezone           = each.value.timezone

  scalable_target_action {
    min_capacity = each.value.min_capacity
    max_capacity = each.value.max_capacity
  }
}
