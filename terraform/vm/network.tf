# Instances call out. Nothing reaches them but the groups in api_security_group_ids and the networks in api_cidrs.

module "network" {
  source = "../modules/network"

  name   = var.name
  vpc_id = var.vpc_id
  # Debian's images take packages and their updates by HTTP. apt checks their signatures.
  open_ports                  = { 443 = "Targets and services of AWS", 80 = "Packages of Debian" }
  database_port               = module.config.database_port
  database_security_group_ids = var.database_security_group_ids
  database_cidrs              = var.database_cidrs
  egress_rules                = var.egress_rules
  vault_port                  = module.config.vault_port
  tags                        = var.tags
}

resource "aws_vpc_security_group_ingress_rule" "api_from_group" {
  count = length(var.api_security_group_ids)

  security_group_id            = module.network.security_group_id
  description                  = "API and console"
  referenced_security_group_id = var.api_security_group_ids[count.index]
  ip_protocol                  = "tcp"
  from_port                    = module.config.port
  to_port                      = module.config.port
  tags                         = var.tags
}

resource "aws_vpc_security_group_ingress_rule" "api_from_network" {
  count = length(var.api_cidrs)

  security_group_id = module.network.security_group_id
  description       = "API and console"
  cidr_ipv4         = strcontains(var.api_cidrs[count.index], ":") ? null : var.api_cidrs[count.index]
  cidr_ipv6         = strcontains(var.api_cidrs[count.index], ":") ? var.api_cidrs[count.index] : null
  ip_protocol       = "tcp"
  from_port         = module.config.port
  to_port           = module.config.port
  tags              = var.tags
}
