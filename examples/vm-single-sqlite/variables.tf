variable "region" {
  description = "Region of AWS."
  type        = string
}

variable "name" {
  description = "Name of the machine and of what belongs to it."
  type        = string
  default     = "carillon"
}

variable "subnet_id" {
  description = "A subnet with a way out, such as a private one with NAT. Its zone is the zone of the data volume: it cannot change later."
  type        = string
}

variable "associate_public_ip_address" {
  description = "Whether the machine gets a public address, for a public subnet without NAT. Nobody is let in all the same."
  type        = bool
  default     = false
}

variable "package" {
  description = "Carillon's Debian package for arm64 and its sha256, both from the release."
  type        = object({ url = string, sha256 = string })
}

variable "log_agent" {
  description = "The Debian package of the Amazon CloudWatch agent for arm64 and its sha256."
  type        = object({ url = string, sha256 = string })
}

variable "session_agent" {
  description = "The Debian package of the Systems Manager agent for arm64 and its sha256. It is the way to the machine and to the API."
  type        = object({ url = string, sha256 = string })
}

variable "alarm_email" {
  description = "Address that gets the alarms; it has to confirm that once. Null if you subscribe something else to the topic."
  type        = string
  default     = null
}

variable "instance_type" {
  description = "An arm64 type on Nitro."
  type        = string
  default     = "t4g.small"
}

variable "data_volume_size" {
  description = "Size of the data volume in GiB. You can enlarge it later."
  type        = number
  default     = 20
}
