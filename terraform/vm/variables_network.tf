# Whom the machines reach, and who reaches them.

variable "vpc_id" {
  description = "VPC of the instances."
  type        = string
}

variable "subnet_ids" {
  description = "Subnets of the instances, in two zones or more. Private ones need a NAT gateway, or endpoints and mirrors for what the instances call."
  type        = list(string)

  validation {
    condition     = length(var.subnet_ids) >= 2 || (var.development && length(var.subnet_ids) == 1)
    error_message = "subnet_ids must hold two subnets in two zones, so that a zone that fails stops no fire. One is allowed with development = true."
  }
}

variable "associate_public_ip_address" {
  description = "Whether instances get public addresses: for public subnets without a NAT gateway. Nothing can connect to them from outside either way."
  type        = bool
  default     = false
}

variable "security_group_ids" {
  description = "More security groups of the instances."
  type        = list(string)
  default     = []
}

variable "api_security_group_ids" {
  description = "Security groups that may connect to the API of the nodes. If nobody may, nodes listen on the loopback address only."
  type        = list(string)
  default     = []
}

variable "api_cidrs" {
  description = "Networks (CIDR) that may connect to the API of the nodes."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for cidr in var.api_cidrs : can(cidrhost(cidr, 0))])
    error_message = "api_cidrs must hold networks such as 10.0.0.0/16."
  }

  validation {
    condition     = alltrue([for cidr in var.api_cidrs : !can(cidrhost(cidr, 0)) || try(tonumber(split("/", cidr)[1]) >= (strcontains(cidr, ":") ? 32 : 8), false)])
    error_message = "api_cidrs opens the API to more than a network of your own. Name the networks that need it; for the internet, put a load balancer with TLS before the nodes."
  }
}

variable "target_group_arns" {
  description = "Target groups of a load balancer of your own that the instances join: port 8080, health check /readyz. Give its security group in api_security_group_ids."
  type        = list(string)
  default     = []

  validation {
    condition     = length(var.target_group_arns) == 0 || length(var.api_security_group_ids) + length(var.api_cidrs) > 0
    error_message = "target_group_arns is set, but nobody may connect to the nodes: give the security group of the load balancer in api_security_group_ids."
  }
}

variable "database_security_group_ids" {
  description = "Security groups of the database, to which nodes may connect. Their ingress rules stay yours: allow the output security_group_id there."
  type        = list(string)
  default     = []
}

variable "database_cidrs" {
  description = "Networks of the database, to which nodes may connect, if it has no security group here."
  type        = list(string)
  default     = []

  validation {
    condition     = length(var.database_cidrs) + length(var.database_security_group_ids) > 0
    error_message = "Nodes could not reach the database: set database_security_group_ids, or database_cidrs."
  }

  validation {
    condition     = alltrue([for cidr in var.database_cidrs : can(cidrhost(cidr, 0))])
    error_message = "database_cidrs must hold networks such as 10.0.0.0/16."
  }
}

variable "egress_rules" {
  description = "Other traffic of the instances than HTTPS, Debian's packages and the database, by a name of your choice, such as webhooks on port 8443 of a private network."
  type = map(object({
    from_port   = number
    to_port     = optional(number)
    ip_protocol = optional(string, "tcp")
    cidr_ipv4   = optional(string)
    cidr_ipv6   = optional(string)
    # Either a network, or one of these.
    prefix_list_id               = optional(string)
    referenced_security_group_id = optional(string)
    description                  = optional(string)
  }))
  default = {}

  validation {
    condition = alltrue([for rule in values(var.egress_rules) : length([
      for target in [rule.cidr_ipv4, rule.cidr_ipv6, rule.prefix_list_id, rule.referenced_security_group_id] : target if target != null
    ]) == 1])
    error_message = "A rule in egress_rules needs exactly one of cidr_ipv4, cidr_ipv6, prefix_list_id and referenced_security_group_id."
  }

  validation {
    condition     = alltrue([for name, rule in var.egress_rules : can(regex("^[a-zA-Z0-9. _:/()#,@+=&;{}!$*\\[\\]-]{1,255}$", coalesce(rule.description, name)))])
    error_message = "A description or name in egress_rules is longer than 255 characters, or has one that EC2 refuses there. Use letters, digits, blanks and . _ - : / ( ) # , @ [ ] + = & ; { } ! $ *"
  }
}
