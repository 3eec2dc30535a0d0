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

variable "vault_port" {
  description = "Port of Vault; null without Vault."
  type        = number
  default     = null

  validation {
    condition = var.vault_port == null || contains(keys(var.open_ports), tostring(coalesce(var.vault_port, 0))) || anytrue([for rule in values(var.egress_rules) :
      contains(["tcp", "-1"], rule.ip_protocol) && rule.from_port <= coalesce(var.vault_port, 0) && coalesce(rule.to_port, rule.from_port) >= coalesce(var.vault_port, 0)
    ])
    error_message = "Nodes could not reach Vault on port ${coalesce(var.vault_port, 0)}: they call port ${join(" and ", keys(var.open_ports))} and the database only. Add it to egress_rules, such as vault = { from_port = ${coalesce(var.vault_port, 0)}, cidr_ipv4 = \"10.0.0.0/16\" }."
  }
}

variable "tags" {
  description = "Tags of all resources."
  type        = map(string)
}
