# Where the fleet runs, and how large it is. variables_node.tf has what a node does, variables_machine.tf what
# the machines are.

variable "name" {
  description = "Name of the fleet, of its autoscaling group and other resources, and the dimension Fleet of its metrics."
  type        = string

  validation {
    condition     = can(regex("^[a-z]([a-z0-9-]{0,30}[a-z0-9])?$", var.name))
    error_message = "The name is \"${var.name}\". Use 1 to 32 of a-z, 0-9 and \"-\", beginning with a letter and not ending with \"-\"."
  }
}

variable "vpc_id" {
  description = "The VPC of the subnets."
  type        = string
}

variable "subnet_ids" {
  description = "Subnets of the instances, in at least two availability zones. They need a way out (NAT, or endpoints and mirrors of your own): for Debian's packages, AWS and what the jobs call."
  type        = list(string)

  validation {
    condition     = length(var.subnet_ids) > 0 && length(var.subnet_ids) == length(distinct(var.subnet_ids))
    error_message = "subnet_ids is empty or names a subnet twice."
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

variable "autoscaling_policies" {
  description = "When instances are added: pool_use_target is the share of the nodes' capacity in use (percent) that the group keeps; overdue_seconds adds instances at once when a due fire waits longer than this. Both need log_agent. Null: the group keeps min_size."
  type = object({
    pool_use_target = optional(number, 50)
    overdue_seconds = optional(number, 10)
  })
  default = {}

  validation {
    condition     = var.autoscaling_policies == null || try(var.autoscaling_policies.pool_use_target >= 10 && var.autoscaling_policies.pool_use_target <= 90, false)
    error_message = "autoscaling_policies.pool_use_target must be from 10 to 90 percent: above it, a herd of fires waits until new instances are ready."
  }

  validation {
    condition     = var.autoscaling_policies == null || try(var.autoscaling_policies.overdue_seconds >= 1, false)
    error_message = "autoscaling_policies.overdue_seconds must be at least 1."
  }
}

variable "api_ingress" {
  description = "Who may reach the HTTP API, console and metrics of the nodes: security groups and networks (CIDR). Empty: nobody from outside; the nodes then listen on the loopback address only."
  type = object({
    security_group_ids = optional(map(string), {})
    cidrs              = optional(list(string), [])
  })
  default = {}

  validation {
    condition     = alltrue([for cidr in var.api_ingress.cidrs : can(cidrhost(cidr, 0))])
    error_message = "api_ingress.cidrs must hold networks such as 10.0.0.0/16."
  }

  validation {
    condition     = alltrue([for cidr in var.api_ingress.cidrs : try(tonumber(split("/", cidr)[1]) >= 8, false)])
    error_message = "api_ingress.cidrs opens the API to a network larger than /8. Name the networks that need it; for the internet put a load balancer with TLS before it."
  }
}

variable "target_group_arns" {
  description = "Target groups of a load balancer of your own that the instances join. Its health check is /readyz on port 8080; give its security group in api_ingress."
  type        = list(string)
  default     = []

  validation {
    condition     = length(var.target_group_arns) == 0 || length(var.api_ingress.security_group_ids) + length(var.api_ingress.cidrs) > 0
    error_message = "target_group_arns is set, but api_ingress lets nobody in: give the security group of the load balancer in api_ingress."
  }
}

variable "alarm_actions" {
  description = "What an alarm notifies, such as ARNs of SNS topics."
  type        = list(string)
  default     = []
}

variable "tags" {
  description = "Tags of all resources, the instances and their volumes."
  type        = map(string)
  default     = {}
}

variable "rollback_alarms" {
  description = "Alarms that stop an instance refresh and bring back the instances of before: of dead-man, overdue, rolled-back, saturated and database-unreachable. A refresh does not start while one of them rings; [] lets you roll out the remedy."
  type        = list(string)
  default     = ["overdue"]

  validation {
    condition     = length(setsubtract(var.rollback_alarms, ["dead-man", "overdue", "rolled-back", "saturated", "database-unreachable"])) == 0
    error_message = "rollback_alarms can hold dead-man, overdue, rolled-back, saturated and database-unreachable."
  }
}
