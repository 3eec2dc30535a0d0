variable "region" {
  description = "Region of AWS."
  type        = string
}

variable "name" {
  description = "Name of the fleet and of its database."
  type        = string
  default     = "carillon"
}

variable "vpc_id" {
  description = "VPC of machines and database."
  type        = string
}

variable "subnet_ids" {
  description = "Private subnets in two zones or more, with a way out to the internet."
  type        = list(string)
}

variable "associate_public_ip_address" {
  description = "Whether machines get public addresses: for the public subnets of a default VPC, which has no NAT gateway. Nobody is let in all the same."
  type        = bool
  default     = false
}

variable "package" {
  description = "Carillon's Debian package for arm64 and its sha256, both from the release."
  type        = object({ url = string, sha256 = string })
}

variable "log_agent" {
  description = "The Debian package of the Amazon CloudWatch agent for arm64, and its sha256."
  type        = object({ url = string, sha256 = string })
}

variable "session_agent" {
  description = "The Debian package of the Systems Manager agent for arm64, and its sha256. It is the way to the machines."
  type        = object({ url = string, sha256 = string })
}

variable "shell_security_group_ids" {
  description = "Security groups of those who may reach the database and the API: a CloudShell in the VPC, a bastion, your pipeline."
  type        = list(string)
}

variable "alarm_email" {
  description = "Address that gets the alarms; it has to confirm that once. Null if you subscribe something else to the topic."
  type        = string
  default     = null
}

variable "database_instance_class" {
  description = "Size of the database."
  type        = string
  default     = "db.t4g.small"
}

variable "database_multi_az" {
  description = "Whether the database has a standby in another zone, which takes over by itself. Nodes wait meanwhile."
  type        = bool
  default     = true
}
