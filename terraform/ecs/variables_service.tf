# The service

variable "create_cluster" {
  description = "Whether the module creates an ECS cluster; false to use cluster_arn."
  type        = bool
  default     = true
}

variable "cluster_arn" {
  description = "An existing ECS cluster, with the capacity providers of Fargate, for create_cluster = false."
  type        = string
  default     = null

  validation {
    condition     = var.create_cluster == (var.cluster_arn == null)
    error_message = "cluster_arn goes with create_cluster = false, and only with it."
  }
}

variable "container_insights" {
  description = "Container Insights of the cluster that the module creates: disabled, enabled or enhanced. It costs extra, and Carillon needs none of it."
  type        = string
  default     = "disabled"

  validation {
    condition     = contains(["disabled", "enabled", "enhanced"], var.container_insights)
    error_message = "container_insights is \"${var.container_insights}\". It must be disabled, enabled or enhanced."
  }
}

variable "capacity_provider_strategy" {
  description = "How nodes are spread over FARGATE and FARGATE_SPOT. Keep a base on FARGATE: AWS may take away all spot tasks at once, with two minutes' notice."
  type = map(object({
    weight = number
    base   = optional(number, 0)
  }))
  default = { FARGATE = { weight = 1 } }

  validation {
    condition     = length(var.capacity_provider_strategy) > 0 && alltrue([for name in keys(var.capacity_provider_strategy) : contains(["FARGATE", "FARGATE_SPOT"], name)])
    error_message = "capacity_provider_strategy must hold FARGATE, FARGATE_SPOT or both."
  }
}

variable "deployment_alarms_rollback" {
  description = "Whether a deployment is rolled back when one of the alarms overdue and database-unreachable rings. The circuit breaker rolls back a deployment whose nodes do not become healthy in any case."
  type        = bool
  default     = true
}

variable "wait_for_steady_state" {
  description = "Whether apply waits until the new nodes run and the old ones have stopped, and fails if they do not."
  type        = bool
  default     = true
}

variable "permissions_boundary_arn" {
  description = "Permissions boundary of the two roles."
  type        = string
  default     = null
}

variable "lambda_function_arns" {
  description = "The Lambda functions that jobs call. If a target names a version or alias, add it to the ARN."
  type        = list(string)
  default     = []
}

variable "sqs_queue_arns" {
  description = "The SQS queues that jobs send to."
  type        = list(string)
  default     = []
}

variable "sns_topic_arns" {
  description = "The SNS topics that jobs publish to."
  type        = list(string)
  default     = []
}

variable "assume_role_arns" {
  description = "The roles that nodes assume: those of targets in other accounts, and those of secret_role_arn."
  type        = list(string)
  default     = []
}

# Scaling

variable "autoscaling_min_capacity" {
  description = "The least number of nodes."
  type        = number
  default     = 2

  validation {
    condition     = var.autoscaling_min_capacity >= (var.development ? 1 : 2)
    error_message = "autoscaling_min_capacity is ${var.autoscaling_min_capacity}. A scheduler cannot scale to zero, and one node alone is a gap whenever it is replaced: take 2 or more. 1 is allowed with development = true."
  }
}

variable "autoscaling_max_capacity" {
  description = "The largest number of nodes; the same as autoscaling_min_capacity for a fixed number."
  type        = number
  default     = 6

  validation {
    condition     = var.autoscaling_max_capacity >= var.autoscaling_min_capacity
    error_message = "autoscaling_max_capacity is ${var.autoscaling_max_capacity}, less than the minimum of ${var.autoscaling_min_capacity}."
  }
}

variable "autoscaling_pool_use" {
  description = "Share of the nodes' capacity in use, in percent, that the number of nodes is adjusted to."
  type        = number
  default     = 60

  validation {
    condition     = var.autoscaling_pool_use >= 10 && var.autoscaling_pool_use <= 90
    error_message = "autoscaling_pool_use is ${var.autoscaling_pool_use}. It must be 10 to 90 percent: with more there is no room until a new node runs."
  }
}

variable "autoscaling_overdue_seconds" {
  description = "Nodes are added at once when a due fire has waited longer than this."
  type        = number
  default     = 10

  validation {
    condition     = var.autoscaling_overdue_seconds >= 1
    error_message = "autoscaling_overdue_seconds is ${var.autoscaling_overdue_seconds}. It must be at least 1."
  }
}

variable "autoscaling_upcoming_fires" {
  description = "Add nodes ahead of a herd: \"add\" nodes once more than \"fires\" are due in the next 15 minutes. Null: never."
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

variable "autoscaling_scheduled_actions" {
  description = "Other bounds at times that you know, by a name of your choice. A schedule is one of Application Auto Scaling, such as cron(0 7 * * ? *)."
  type = map(object({
    schedule     = string
    timezone     = optional(string, "Etc/UTC")
    min_capacity = number
    max_capacity = number
  }))
  default = {}

  validation {
    condition     = alltrue([for action in values(var.autoscaling_scheduled_actions) : action.min_capacity >= (var.development ? 1 : 2) && action.max_capacity >= action.min_capacity])
    error_message = "An action in autoscaling_scheduled_actions has less than 2 nodes, or a maximum below its minimum."
  }
}
