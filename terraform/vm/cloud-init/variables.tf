variable "region" {
  description = "Region of the secrets, the log group and the autoscaling group."
  type        = string
}

variable "environment" {
  description = "Variables of the node by name, none of them secret: the output environment of modules/config."
  type        = map(string)

  validation {
    condition     = alltrue([for value in values(var.environment) : !can(regex("[\\r\\n]", value))])
    error_message = "A value in environment has a line break in it. A line of carillon.env holds one variable."
  }
}

variable "secrets" {
  description = "Variables whose values are in Secrets Manager: the output secrets of modules/config. A key of a JSON secret is written as ARN:KEY::."
  type        = map(string)
  default     = {}
}

variable "package" {
  description = "The Debian package of Carillon: its https or s3 address, and the sha256 that SHA256SUMS of the release has for it."
  type = object({
    url    = string
    sha256 = string
  })

  validation {
    condition     = can(regex("^(https|s3)://[A-Za-z0-9._~:/?&=%+@-]+\\.deb$", var.package.url))
    error_message = "The address of the package is \"${var.package.url}\". It must begin with https:// or s3:// and end with .deb."
  }

  validation {
    condition     = can(regex("^[0-9a-f]{64}$", var.package.sha256))
    error_message = "The sha256 of the package must be 64 of 0-9 and a-f, as sha256sum prints it."
  }
}

variable "log_agent" {
  description = "The Debian package of the Amazon CloudWatch agent, and the log group that it writes to. Null: log and metrics stay on the machine."
  type = object({
    url            = string
    sha256         = string
    log_group_name = string
  })
  default = null

  validation {
    condition     = var.log_agent == null || can(regex("^(https|s3)://[A-Za-z0-9._~:/?&=%+@-]+\\.deb$", var.log_agent.url))
    error_message = "The address of the log agent's package must begin with https:// or s3:// and end with .deb."
  }

  validation {
    condition     = var.log_agent == null || can(regex("^[0-9a-f]{64}$", var.log_agent.sha256))
    error_message = "The sha256 of the log agent's package must be 64 of 0-9 and a-f, as sha256sum prints it."
  }
}

variable "additional_packages" {
  description = "More Debian packages to install before Carillon, such as the agent of Systems Manager."
  type = list(object({
    url    = string
    sha256 = string
  }))
  default = []

  validation {
    condition = alltrue([for p in var.additional_packages :
    can(regex("^(https|s3)://[A-Za-z0-9._~:/?&=%+@-]+\\.deb$", p.url)) && can(regex("^[0-9a-f]{64}$", p.sha256))])
    error_message = "Each of additional_packages needs an address that begins with https:// or s3:// and ends with .deb, and a sha256 of 64 of 0-9 and a-f."
  }
}

variable "install_debian_packages" {
  description = "Whether to install awscli, curl, jq and logrotate from Debian at the first boot. False for an image of your own that has them."
  type        = bool
  default     = true
}

variable "stop_timeout" {
  description = "Seconds from SIGTERM until systemd kills the node."
  type        = number
  default     = 120
}

variable "ready_timeout" {
  description = "Seconds from the start of the node until it must be ready."
  type        = number
  default     = 300

  validation {
    condition     = var.ready_timeout >= 30 && var.ready_timeout <= 3600 && floor(var.ready_timeout) == var.ready_timeout
    error_message = "ready_timeout is ${var.ready_timeout}. It must be a whole number of seconds from 30 to 3600."
  }
}

variable "group" {
  description = "The autoscaling group and its hooks; null for a machine outside of a group."
  type = object({
    name           = string
    launch_hook    = string
    terminate_hook = string
  })
  default = null
}

variable "data_volume_id" {
  description = "EBS volume for the state of the node, for SQLite on a single machine; null for none."
  type        = string
  default     = null

  validation {
    condition     = var.data_volume_id == null || can(regex("^vol-[0-9a-f]+$", var.data_volume_id))
    error_message = "data_volume_id must be the id of an EBS volume, such as vol-0123456789abcdef0."
  }
}
