variable "name" {
  description = "Name of the fleet: the dimension Fleet of its metrics, and the beginning of the names of its alarms."
  type        = string
}

variable "alarm_actions" {
  description = "What an alarm notifies when it rings, such as ARNs of SNS topics."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for arn in var.alarm_actions : can(regex("^arn:aws[a-z-]*:[a-z0-9-]+:", arn))])
    error_message = "alarm_actions must hold ARNs, such as arn:aws:sns:REGION:ACCOUNT:TOPIC."
  }
}

variable "ok_actions" {
  description = "What an alarm notifies when it is over; null for the same as alarm_actions."
  type        = list(string)
  default     = null

  validation {
    condition     = var.ok_actions == null || try(alltrue([for arn in var.ok_actions : can(regex("^arn:aws[a-z-]*:[a-z0-9-]+:", arn))]), false)
    error_message = "ok_actions must hold ARNs, such as arn:aws:sns:REGION:ACCOUNT:TOPIC."
  }
}

variable "overdue_seconds" {
  description = "The alarm overdue rings when the oldest due fire waits longer than this."
  type        = number
  default     = 30

  validation {
    condition     = var.overdue_seconds >= 1
    error_message = "overdue_seconds is ${var.overdue_seconds}. It must be at least 1."
  }
}

variable "tags" {
  description = "Tags of the alarms."
  type        = map(string)
  default     = {}
}
