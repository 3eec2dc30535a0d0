variable "region" {
  description = "Region of AWS."
  type        = string
}

variable "name" {
  description = "Name of the fleet and of its database."
  type        = string
  default     = "carillon"
}

variable "image" {
  description = "Image by digest; the release notes have it."
  type        = string
}

variable "vpc_id" {
  description = "VPC of nodes and database."
  type        = string
}

variable "subnet_ids" {
  description = "Private subnets in two zones or more, with a way out to the internet."
  type        = list(string)
}

variable "assign_public_ip" {
  description = "Whether nodes get public addresses: for the public subnets of a default VPC, which has no NAT gateway."
  type        = bool
  default     = false
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
  default     = "db.t4g.micro"
}

variable "database_multi_az" {
  description = "Whether the database has a standby in another zone, which takes over by itself. Nodes wait meanwhile."
  type        = bool
  default     = true
}
