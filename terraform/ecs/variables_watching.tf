# Logs and alarms

variable "log_retention_in_days" {
  description = "How long the log is kept."
  type        = number
  default     = 30

  validation {
    condition     = contains([1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653], var.log_retention_in_days)
    error_message = "log_retention_in_days is ${var.log_retention_in_days}. CloudWatch knows 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365 and more days, not every number."
  }
}

variable "create_kms_key" {
  description = "Whether the module creates the KMS key of the log; false to use log_kms_key_arn."
  type        = bool
  default     = true
}

variable "log_kms_key_arn" {
  description = "An existing KMS key of the log, which CloudWatch Logs may use, for create_kms_key = false."
  type        = string
  default     = null

  validation {
    condition     = var.create_kms_key == (var.log_kms_key_arn == null)
    error_message = "log_kms_key_arn goes with create_kms_key = false, and only with it."
  }
}

variable "alarm_actions" {
  description = "What the alarms notify, such as ARNs of SNS topics."
  type        = list(string)
  default     = []
}

variable "alarm_overdue_seconds" {
  description = "The alarm overdue rings when the oldest due fire waits longer than this."
  type        = number
  default     = 30
}
