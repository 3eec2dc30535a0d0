# What the machines are, and what is installed on them.

variable "package_url" {
  description = "Address of Carillon's Debian package for this architecture, https:// or s3://. For s3 the instances get the right to read this object."
  type        = string

  validation {
    condition     = can(regex("^(https|s3)://[A-Za-z0-9._~:/?&=%+@-]+\\.deb$", var.package_url))
    error_message = "package_url is \"${var.package_url}\". It must begin with https:// or s3:// and end with .deb."
  }

  validation {
    condition     = !can(regex("_(amd64|arm64)\\.deb$", var.package_url)) || endswith(var.package_url, "_${var.architecture}.deb")
    error_message = "package_url is \"${var.package_url}\", and architecture is \"${var.architecture}\". Give the package for ${var.architecture}."
  }
}

variable "package_sha256" {
  description = "The sha256 of this package, from SHA256SUMS of the release. Instances install nothing else."
  type        = string

  validation {
    condition     = can(regex("^[0-9a-f]{64}$", var.package_sha256))
    error_message = "package_sha256 must be 64 of 0-9 and a-f, as sha256sum prints it."
  }
}

variable "log_agent" {
  description = "Debian package of the Amazon CloudWatch agent, which brings log and metrics to CloudWatch: its address and sha256. Without it there are no alarms and no autoscaling."
  type = object({
    package_url    = string
    package_sha256 = string
  })
  default = null

  validation {
    condition     = var.log_agent == null || can(regex("^(https|s3)://[A-Za-z0-9._~:/?&=%+@-]+\\.deb$", var.log_agent.package_url))
    error_message = "log_agent.package_url must begin with https:// or s3:// and end with .deb."
  }

  validation {
    condition     = var.log_agent == null || can(regex("^[0-9a-f]{64}$", var.log_agent.package_sha256))
    error_message = "log_agent.package_sha256 must be 64 of 0-9 and a-f, as sha256sum prints it."
  }
}

variable "additional_packages" {
  description = "More Debian packages to install, such as the agent of Systems Manager."
  type = list(object({
    url    = string
    sha256 = string
  }))
  default = []
}

variable "install_debian_packages" {
  description = "Whether to install awscli, curl, jq and logrotate from Debian at the first boot. False for an ami_id of your own that has them."
  type        = bool
  default     = true
}

variable "architecture" {
  description = "arm64 or amd64."
  type        = string
  default     = "arm64"

  validation {
    condition     = contains(["arm64", "amd64"], var.architecture)
    error_message = "architecture is \"${var.architecture}\". It must be arm64 or amd64."
  }
}

variable "ami_id" {
  description = "Image of the machines: Debian 12, or one made of it. Null for the newest of Debian; a newer one then shows up in the next plan, and replaces the instances when you apply it."
  type        = string
  default     = null

  validation {
    condition     = var.ami_id == null || can(regex("^ami-[0-9a-f]{8,17}$", var.ami_id))
    error_message = "ami_id must be the id of an image, such as ami-0123456789abcdef0."
  }
}

variable "instance_types" {
  description = "Types of the instances, the preferred one first. More than one helps if a zone has no capacity, and with spot."
  type        = list(string)
  default     = ["t4g.small"]

  validation {
    condition     = length(var.instance_types) > 0 && length(var.instance_types) <= 40 && alltrue([for t in var.instance_types : can(regex("^[a-z0-9-]+\\.[a-z0-9-]+$", t))])
    error_message = "instance_types must hold 1 to 40 types such as t4g.small."
  }

  # Types with a processor of AWS have a "g" after the number of their generation.
  validation {
    condition     = alltrue([for t in var.instance_types : (can(regex("^[a-z]+[0-9]+g[a-z]*\\.", t)) || startswith(t, "a1.")) == (var.architecture == "arm64")])
    error_message = "instance_types (${join(", ", var.instance_types)}) has a type that is not ${var.architecture}. Types such as t4g and m7g are arm64; t3 and m7i are amd64."
  }
}

variable "spot" {
  description = "Share of spot instances: on_demand_base instances are never spot, and of the others on_demand_percentage. Null for none. AWS takes spot instances back with a notice of two minutes."
  type = object({
    on_demand_base       = optional(number, 1)
    on_demand_percentage = optional(number, 0)
  })
  default = null

  validation {
    condition     = var.spot == null || try(var.spot.on_demand_base >= 0 && var.spot.on_demand_percentage >= 0 && var.spot.on_demand_percentage <= 100, false)
    error_message = "spot.on_demand_base must be at least 0, and spot.on_demand_percentage from 0 to 100."
  }

  validation {
    condition     = var.spot == null || try(var.spot.on_demand_base >= 1, false) || var.development
    error_message = "spot.on_demand_base is 0: AWS can take all instances at once. Set it to 1 or more, or set development = true."
  }

  # A drain that is longer than the notice would be cut off.
  validation {
    condition     = var.spot == null || var.stop_timeout <= 120
    error_message = "stop_timeout is ${var.stop_timeout} s, and AWS stops a spot instance 120 s after its notice. Set stop_timeout to 120 or less, or spot = null."
  }
}

variable "volume_size" {
  description = "Size of the root volume in GiB. It is always encrypted."
  type        = number
  default     = 8

  validation {
    condition     = var.volume_size >= 8 && var.volume_size <= 1000 && floor(var.volume_size) == var.volume_size
    error_message = "volume_size is ${var.volume_size}. It must be a whole number of GiB from 8, the size of Debian's image, to 1000."
  }
}

variable "volume_kms_key_arn" {
  description = "KMS key of the volumes; null for the key aws/ebs. AWSServiceRoleForAutoScaling needs the right to use it."
  type        = string
  default     = null
}

variable "key_name" {
  description = "SSH key pair of the instances; null for none. No port is open for SSH: give security groups that open one in security_group_ids."
  type        = string
  default     = null
}

variable "detailed_monitoring" {
  description = "Whether EC2 measures the instances each minute instead of each five minutes, for a charge."
  type        = bool
  default     = false
}

variable "additional_policy_arns" {
  description = "More policies of the role of the instances, by a name of your choice, such as that of Systems Manager."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for arn in values(var.additional_policy_arns) : can(regex("^arn:aws[a-z-]*:iam::([0-9]{12}|aws):policy/", arn))])
    error_message = "additional_policy_arns must hold ARNs of policies: arn:aws:iam::ACCOUNT:policy/NAME."
  }
}

variable "permissions_boundary_arn" {
  description = "Permissions boundary of the role, if your account demands one."
  type        = string
  default     = null
}

variable "ready_timeout" {
  description = "Seconds from the start of a node until it must be ready. An instance whose node is not is given up."
  type        = number
  default     = 300

  validation {
    condition     = var.ready_timeout >= 30 && var.ready_timeout <= 3600 && floor(var.ready_timeout) == var.ready_timeout
    error_message = "ready_timeout is ${var.ready_timeout}. It must be a whole number of seconds from 30 to 3600."
  }
}
