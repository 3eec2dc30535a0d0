output "arns" {
  description = "ARNs of the alarms by what they tell: dead-man, overdue, rolled-back, saturated, database-unreachable."
  value       = { for key, alarm in aws_cloudwatch_metric_alarm.this : key => alarm.arn }
}

output "names" {
  description = "Names of the alarms by what they tell."
  value       = { for key, alarm in aws_cloudwatch_metric_alarm.this : key => alarm.alarm_name }
}
