mock_provider "aws" {}

variables {
  name          = "payroll"
  alarm_actions = ["arn:aws:sns:eu-central-1:123456789012:on-call"]
}

run "five_alarms" {
  assert {
    condition     = toset(keys(output.arns)) == toset(["dead-man", "overdue", "rolled-back", "saturated", "database-unreachable"])
    error_message = "The alarms are ${join(", ", keys(output.arns))}."
  }
  assert {
    condition     = [for key, alarm in aws_cloudwatch_metric_alarm.this : key if alarm.treat_missing_data == "breaching"] == ["dead-man"]
    error_message = "Silence rings another alarm than the dead man's, or not his."
  }
  assert {
    condition     = alltrue([for alarm in aws_cloudwatch_metric_alarm.this : alarm.ok_actions == alarm.alarm_actions])
    error_message = "Nobody hears of the end of an alarm."
  }
  assert {
    condition     = output.names["dead-man"] == "payroll-dead-man"
    error_message = "The alarm is called ${output.names["dead-man"]}."
  }
}

run "no_message_when_an_alarm_is_over" {
  command = plan
  variables {
    ok_actions = []
  }
  assert {
    condition     = length(aws_cloudwatch_metric_alarm.this["overdue"].ok_actions) == 0
    error_message = "ok_actions = [] notifies somebody."
  }
}

run "actions_are_arns" {
  command = plan
  variables {
    alarm_actions = ["on-call"]
    ok_actions    = ["on-call"]
  }
  expect_failures = [var.alarm_actions, var.ok_actions]
}

run "overdue_seconds_has_a_least" {
  command = plan
  variables {
    overdue_seconds = 0
  }
  expect_failures = [var.overdue_seconds]
}
