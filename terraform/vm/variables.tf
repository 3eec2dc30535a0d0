# Where the fleet runs, and how large it is. variables_node.tf has what a node does,
# variables_machine.tf what the machines are, variables_network.tf whom they reach. Names are those of terraform/ecs
# and of the modules in terraform-aws-modules where the meaning is the same.

variable "name" {
  description = "Name of the fleet, of its autoscaling group and other resources, and the dimension Fleet of its metrics."
  type        = string

  validation {
    condition     = can(regex("^[a-z]([a-z0-9-]{0,30}[a-z0-9])?$", var.name))
    error_message = "The name is \"${var.name}\". Use 1 to 32 of a-z, 0-9 and \"-\", beginning with a letter and not ending with \"-\"."
  }
}

variable "min_size" {
  description = "Least number of instances, which is also the number at the start."
  type        = number
  default     = 2

  validation {
    condition     = var.min_size >= 1 && floor(var.min_size) == var.min_size
    error_message = "min_size is ${var.min_size}. A scheduler has to run all the time: it must be a whole number, at least 1."
  }

  validation {
    condition     = var.min_size >= 2 || var.development
    error_message = "min_size is 1: nothing fires while that instance is replaced. Set it to 2 or more, or set development = true."
  }
}

variable "max_size" {
  description = "Greatest number of instances. During an instance refresh there can be twice as many as the group wants."
  type        = number
  default     = 6

  validation {
    condition     = var.max_size >= var.min_size && floor(var.max_size) == var.max_size
    error_message = "max_size is ${var.max_size} and min_size ${var.min_size}. max_size must be a whole number, at least min_size."
  }
}

variable "development" {
  description = "Allows one instance, and subnets of one availability zone."
  type        = bool
  default     = false
}

variable "autoscaling_pool_use" {
  description = "Share of the nodes' capacity in use, in percent, that the number of instances is adjusted to. Scaling needs log_agent, and a max_size above min_size."
  type        = number
  default     = 60

  validation {
    condition     = var.autoscaling_pool_use >= 10 && var.autoscaling_pool_use <= 90
    error_message = "autoscaling_pool_use is ${var.autoscaling_pool_use}. It must be 10 to 90 percent: with more there is no room until a new instance is ready."
  }
}

variable "autoscaling_overdue_seconds" {
  description = "Instances are added at once when a due fire has waited longer than this."
  type        = number
  default     = 10

  validation {
    condition     = var.autoscaling_overdue_seconds >= 1
    error_message = "autoscaling_overdue_seconds is ${var.autoscaling_overdue_seconds}. It must be at least 1."
  }
}

variable "autoscaling_upcoming_fires" {
  description = "Add instances ahead of a herd: \"add\" instances once more than \"fires\" are due in the next 15 minutes. Null: never."
  type = object({
    fires = number
    add   = number
  })
  default = null

  validation {
    condition     = var.autoscaling_upcoming_fires == null || try(var.autoscaling_upcoming_fires.fires >= 1 && var.autoscaling_upcoming_fires.add >= 1, false)
    error_message = "autoscaling_upcoming_fires needs fires and add, both at least 1."
  }
}

variable "deployment_alarms_rollback" {
  description = "Whether an instance refresh is stopped and rolled back when one of the alarms overdue and database-unreachable rings. A refresh does not start while one of them rings: set this to false to roll out the remedy. An instance whose node does not become ready is given up in any case."
  type        = bool
  default     = true
}

variable "log_retention_in_days" {
  description = "How long the log is kept in CloudWatch."
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

variable "tags" {
  description = "Tags of all resources, the instances and their volumes."
  type        = map(string)
  default     = {}
}
