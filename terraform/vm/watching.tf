# Log, alarms and autoscaling. All of it needs the log agent: nodes write their metrics into the log.

check "log_agent" {
  assert {
    condition     = local.observed
    error_message = "log_agent is null: log and metrics stay on the instances. There are no alarms, the group keeps ${var.min_size} instances, and nobody is told when nothing fires."
  }
}

# The log holds no payloads and no secrets, but names of jobs and addresses of targets.
resource "aws_kms_key" "log" {
  count = local.observed && var.create_kms_key ? 1 : 0

  description         = "Log of the Carillon fleet ${var.name}"
  enable_key_rotation = true
  tags                = var.tags

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        # As AWS makes it for every key: IAM policies of the account decide who manages and reads it.
        Sid       = "Account"
        Effect    = "Allow"
        Principal = { AWS = "${local.arn}:iam::${local.account}:root" }
        Action    = "kms:*"
        Resource  = "*" # this key
      },
      {
        Sid       = "CloudWatchLogs"
        Effect    = "Allow"
        Principal = { Service = "logs.${local.region}.amazonaws.com" }
        Action = [
          "kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey", "kms:GenerateDataKeyWithoutPlaintext",
          "kms:ReEncryptFrom", "kms:ReEncryptTo",
        ]
        Resource = "*" # this key
        Condition = {
          ArnEquals = { "kms:EncryptionContext:aws:logs:arn" = "${local.arn}:logs:${local.region}:${local.account}:log-group:${local.log_group}" }
        }
      },
    ]
  })
}

resource "aws_cloudwatch_log_group" "this" {
  count = local.observed ? 1 : 0

  name              = local.log_group
  retention_in_days = var.log_retention_in_days
  kms_key_id        = var.create_kms_key ? aws_kms_key.log[0].arn : var.log_kms_key_arn
  tags              = var.tags
}

module "alarms" {
  source = "../modules/alarms"
  count  = local.observed ? 1 : 0

  name            = var.name
  alarm_actions   = var.alarm_actions
  overdue_seconds = var.alarm_overdue_seconds
  tags            = var.tags
}

# The signal is how much of the nodes' capacity is in use, not their processors: a node that waits for slow targets
# has an idle processor and no worker left. Target tracking adds within some three minutes, and removes after 15.
resource "aws_autoscaling_policy" "pool_use" {
  count                  = local.scales ? 1 : 0
  name                   = "${var.name}-pool-use"
  autoscaling_group_name = aws_autoscaling_group.this.name
  policy_type            = "TargetTrackingScaling"

  target_tracking_configuration {
    target_value = var.autoscaling_pool_use

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

# Fires wait although no average shows it: half as many instances again at once, twice as many if it is bad.
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
    metric_interval_upper_bound = 20
    scaling_adjustment          = 50
  }

  step_adjustment {
    metric_interval_lower_bound = 20
    scaling_adjustment          = 100
  }
}

resource "aws_cloudwatch_metric_alarm" "scale_out_overdue" {
  count               = local.scales ? 1 : 0
  alarm_name          = "${var.name}-scale-out-overdue"
  alarm_description   = "Adds instances to ${var.name}. It is no reason to wake anybody; the alarm ${var.name}-overdue is."
  namespace           = "Carillon"
  metric_name         = "OldestOverdue"
  dimensions          = { Fleet = var.name }
  statistic           = "Maximum"
  comparison_operator = "GreaterThanThreshold"
  threshold           = var.autoscaling_overdue_seconds
  period              = 60
  evaluation_periods  = 1
  treat_missing_data  = "notBreaching"
  alarm_actions       = [aws_autoscaling_policy.overdue[0].arn]
  tags                = var.tags
}

# A herd is known before it comes.
resource "aws_autoscaling_policy" "upcoming" {
  count = local.scales && var.autoscaling_upcoming_fires != null ? 1 : 0

  name                      = "${var.name}-upcoming"
  autoscaling_group_name    = aws_autoscaling_group.this.name
  policy_type               = "StepScaling"
  adjustment_type           = "ChangeInCapacity"
  metric_aggregation_type   = "Maximum"
  estimated_instance_warmup = 900 # one herd is counted for 15 minutes

  step_adjustment {
    metric_interval_lower_bound = 0
    scaling_adjustment          = var.autoscaling_upcoming_fires.add
  }
}

resource "aws_cloudwatch_metric_alarm" "scale_out_upcoming" {
  count = local.scales && var.autoscaling_upcoming_fires != null ? 1 : 0

  alarm_name          = "${var.name}-scale-out-upcoming"
  alarm_description   = "Adds instances to ${var.name} ahead of many fires. It is no reason to wake anybody."
  namespace           = "Carillon"
  metric_name         = "UpcomingFires"
  dimensions          = { Fleet = var.name }
  statistic           = "Maximum"
  comparison_operator = "GreaterThanThreshold"
  threshold           = var.autoscaling_upcoming_fires.fires
  period              = 60
  evaluation_periods  = 1
  treat_missing_data  = "notBreaching"
  alarm_actions       = [aws_autoscaling_policy.upcoming[0].arn]
  tags                = var.tags
}
