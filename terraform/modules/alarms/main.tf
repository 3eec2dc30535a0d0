# What should wake somebody. Each node writes a line of metrics a minute; the five alarms look at all
# nodes of a fleet together. docs/how-to/monitor.md says what to do when one rings.

locals {
  alarms = {
    # A minute of a clock may miss the line of a node, so that it takes three without any.
    dead-man = {
      metric      = "Nodes"
      description = "No node of ${var.name} is alive: nothing fires."
      statistic   = "Sum"
      comparison  = "LessThanThreshold"
      threshold   = 1
      minutes     = 3
      missing     = "breaching"
    }
    overdue = {
      metric      = "OldestOverdue"
      description = "A fire of ${var.name} has been due for more than ${var.overdue_seconds} s, and no node has claimed it."
      statistic   = "Maximum"
      comparison  = "GreaterThanThreshold"
      threshold   = var.overdue_seconds
      minutes     = 2
      missing     = "notBreaching"
    }
    rolled-back = {
      metric      = "RolledBack"
      description = "The database of ${var.name} lost committed data. All nodes wait until you choose what happens: \"carillon rollback show\"."
      statistic   = "Maximum"
      comparison  = "GreaterThanThreshold"
      threshold   = 0
      minutes     = 1
      missing     = "notBreaching"
    }
    saturated = {
      metric      = "WaitingFires"
      description = "Fires of ${var.name} have been waiting for a worker on every node for 5 minutes: it needs more nodes or workers."
      statistic   = "Minimum"
      comparison  = "GreaterThanThreshold"
      threshold   = 0
      minutes     = 5
      missing     = "notBreaching"
    }
    database-unreachable = {
      metric      = "DatabaseUnreachable"
      description = "A node of ${var.name} has not reached its database for 3 minutes."
      statistic   = "Maximum"
      comparison  = "GreaterThanThreshold"
      threshold   = 0
      minutes     = 3
      missing     = "notBreaching"
    }
  }
}

resource "aws_cloudwatch_metric_alarm" "this" {
  for_each = local.alarms

  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = each.value.description
  namespace           = "Carillon"
  metric_name         = each.value.metric
  dimensions          = { Fleet = var.name }
  statistic           = each.value.statistic
  comparison_operator = each.value.comparison
  threshold           = each.value.threshold
  period              = 60
  evaluation_periods  = each.value.minutes
  datapoints_to_alarm = each.value.minutes
  treat_missing_data  = each.value.missing
  alarm_actions       = var.alarm_actions
  ok_actions          = coalesce(var.ok_actions, var.alarm_actions)
  tags                = var.tags
}
