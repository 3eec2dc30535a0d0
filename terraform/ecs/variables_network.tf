# The network

variable "vpc_id" {
  description = "VPC of the nodes."
  type        = string
}

variable "subnet_ids" {
  description = "Subnets of the nodes, in two zones or more. Private ones need a NAT gateway, or endpoints for what nodes call."
  type        = list(string)

  validation {
    condition     = length(var.subnet_ids) >= 2 || (var.development && length(var.subnet_ids) == 1)
    error_message = "subnet_ids must hold two subnets in two zones, so that a zone that fails stops no fire. One is allowed with development = true."
  }
}

variable "assign_public_ip" {
  description = "Whether nodes get public addresses: for public subnets without a NAT gateway. Nothing can connect to them from outside either way."
  type        = bool
  default     = false
}

variable "security_group_ids" {
  description = "More security groups of the nodes."
  type        = list(string)
  default     = []
}

variable "api_security_group_ids" {
  description = "Security groups that may connect to the API of the nodes directly, without the load balancer."
  type        = list(string)
  default     = []
}

variable "egress_rules" {
  description = "Other traffic of the nodes than HTTPS and the database, by a name of your choice, such as webhooks on port 8443 of a private network."
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

variable "callback_url" {
  description = "URL of the API as targets reach it, such as https://carillon.example.com. Jobs with callback need it. Null: none."
  type        = string
  default     = null
}

variable "egress_private" {
  description = "Private networks (CIDR) that jobs may call, such as that of the VPC. Default: none."
  type        = list(string)
  default     = []
}

variable "egress_deny" {
  description = "Networks (CIDR) that nodes never call."
  type        = list(string)
  default     = []
}

# Access to API and console

variable "load_balancer" {
  description = "An internal load balancer with TLS for API and console. domain_name is a name in the certificate, whose record you point at the output load_balancer. Null: none."
  type = object({
    certificate_arn            = string
    domain_name                = string
    subnet_ids                 = optional(list(string))
    allowed_cidrs              = optional(list(string), [])
    allowed_security_group_ids = optional(list(string), [])
    allowed_prefix_list_ids    = optional(list(string), [])
    ssl_policy                 = optional(string, "ELBSecurityPolicy-TLS13-1-2-Res-2021-06")
    deregistration_delay       = optional(number, 60)
    access_logs_bucket         = optional(string)
    deletion_protection        = optional(bool, true)
  })
  default = null

  validation {
    condition     = var.load_balancer == null || try(length(var.load_balancer.allowed_cidrs) + length(var.load_balancer.allowed_security_group_ids) + length(var.load_balancer.allowed_prefix_list_ids) > 0, false)
    error_message = "Nobody could reach the load balancer: set allowed_cidrs, allowed_security_group_ids or allowed_prefix_list_ids."
  }

  validation {
    condition     = var.load_balancer == null || try(alltrue([for cidr in var.load_balancer.allowed_cidrs : can(regex("^(10\\.|172\\.(1[6-9]|2[0-9]|3[01])\\.|192\\.168\\.|100\\.(6[4-9]|[7-9][0-9]|1[01][0-9]|12[0-7])\\.|f[cd])", cidr)) && can(cidrhost(cidr, 0))]), false)
    error_message = "allowed_cidrs must hold private networks such as 10.0.0.0/16: the load balancer is internal."
  }

  validation {
    condition     = var.load_balancer == null || can(regex("^ELBSecurityPolicy-TLS13-1-[23]-", var.load_balancer.ssl_policy))
    error_message = "ssl_policy must be one of ELBSecurityPolicy-TLS13-1-2-... or -1-3-...: older ones allow versions of TLS that are broken."
  }

  validation {
    condition     = var.load_balancer == null || try(var.load_balancer.deregistration_delay <= var.drain_timeout, false)
    error_message = "deregistration_delay is longer than drain_timeout (${var.drain_timeout} s): a node would be gone while the load balancer still sends to it."
  }
}

variable "service_discovery" {
  description = "A private DNS namespace of Cloud Map in which the nodes are found under the name of the fleet. Null: none."
  type = object({
    namespace_id   = string
    namespace_name = string
  })
  default = null
}
