variable "name" {
  description = "Name of the fleet."
  type        = string
}

variable "vpc_id" {
  description = "VPC of the nodes."
  type        = string
}

variable "open_ports" {
  description = "TCP ports that nodes call anywhere, each with the reason."
  type        = map(string)
}

variable "database_port" {
  description = "Port of the database; null without PostgreSQL."
  type        = number
}

variable "database_security_group_ids" {
  description = "Security groups of the database."
  type        = list(string)
}

variable "database_cidrs" {
  description = "Networks (CIDR) of the database."
  type        = list(string)
}

variable "egress_rules" {
  description = "Other traffic of the nodes, by name. The module that the user calls checks it."
  type = map(object({
    from_port                    = number
    to_port                      = optional(number)
    ip_protocol                  = optional(string, "tcp")
    cidr_ipv4                    = optional(string)
    cidr_ipv6                    = optional(string)
    prefix_list_id               = optional(string)
    referenced_security_group_id = optional(string)
    description                  = optional(string)
  }))
}

variable "tags" {
  description = "Tags of all resources."
  type        = map(string)
}
