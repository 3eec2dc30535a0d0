# Log, alarms and autoscaling. All of it needs the log agent: nodes write their metrics into the log.

check "log_agent" {
  assert {
    condition     = local.observed
    error_message = "log_agent is null: log and metrics stay on the instances. There are no alarms, the group keeps ${var.min_size} instances, and nobody is told when nothing fires."
  }
}

resource "aws_cloudwatch_log_group" "this" {
  count             = local.observed ? 1 : 0
  name              = "/carillon/${var.name}"
  retention_in_days = var.log_retention_days
  kms_key_id        = var.log_kms_key_arn
  tags              = var.tags
}

module "alarms" {
  source = "../modules/alarms"
  count  = local.observed ? 1 : 0

  name          = var.name
  alarm_actions = var.alarm_actions
  tags          = var.tags
}

# Instances are added when the pools fill, and removed slowly.
resource "aws_autoscaling_policy" "pool_use" {
  count                  = local.scales ? 1 : 0
  name                   = "${var.name}-pool-use"
  autoscaling_group_name = aws_autoscaling_group.this.name
  policy_type            = "TargetTrackingScaling"

  target_tracking_configuration {
    target_value = var.autoscaling_policies.pool_use_target

    customized_metric_specification {
      namespace   = "Carillon"
      metric_name = "PoolUse"
      statistic   = "Average"

      metric_dimension {
        name  = "Fleet"
        value = var.name
      }
    }
  }
}

# Fires that nobody claims in time need more nodes at once.
resource "aws_autoscaling_policy" "overdue" {
  count                    = local.scales ? 1 : 0
  name                     = "${var.name}-overdue"
  autoscaling_group_name   = aws_autoscaling_group.this.name
  policy_type              = "StepScaling"
  adjustment_type          = "PercentChangeInCapacity"
  min_adjustment_magnitude = 1
  metric_aggregation_type  = "Maximum"

  step_adjustment {
    metric_interval_lower_bound = 0
    metric_interval_upper_bound = 60
    scaling_adjustment          = 50
  }

  step_adjustment {
    metric_interval_lower_bound = 60
    scaling_adjustment          = 100
  }
}

resource "aws_cloudwatch_metric_alarm" "scale_out" {
  count               = local.scales ? 1 : 0
  alarm_name          = "${var.name}-scale-out"
  alarm_description   = "Adds instances to ${var.name}: a due fire waits longer than ${var.autoscaling_policies.overdue_seconds} s."
  namespace           = "Carillon"
  metric_name         = "OldestOverdue"
  dimensions          = { Fleet = var.name }
  statistic           = "Maximum"
  comparison_operator = "GreaterThanThreshold"
  threshold           = var.autoscaling_policies.overdue_seconds
  period              = 60
  evaluation_periods  = 1
  treat_missing_data  = "notBreaching"
  alarm_actions       = [aws_autoscaling_policy.overdue[0].arn]
  tags                = var.tags
}
