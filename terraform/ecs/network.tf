# Nodes call out. Nothing reaches them but the load balancer and the groups in api_security_group_ids.

module "network" {
  source = "../modules/network"

  name                        = var.name
  vpc_id                      = var.vpc_id
  open_ports                  = { 443 = "Targets and services of AWS" }
  database_port               = module.config.database_port
  database_security_group_ids = var.database_security_group_ids
  database_cidrs              = var.database_cidrs
  egress_rules                = var.egress_rules
  vault_port                  = module.config.vault_port
  tags                        = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "api" {
  count = length(var.api_security_group_ids)

  security_group_id            = module.network.security_group_id
  description                  = "API and console"
  referenced_security_group_id = var.api_security_group_ids[count.index]
  ip_protocol                  = "tcp"
  from_port                    = module.config.port
  to_port                      = module.config.port
  tags                         = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "load_balancer" {
  count = var.load_balancer == null ? 0 : 1

  security_group_id            = module.network.security_group_id
  description                  = "Load balancer"
  referenced_security_group_id = aws_security_group.load_balancer[0].id
  ip_protocol                  = "tcp"
  from_port                    = module.config.port
  to_port                      = module.config.port
  tags                         = local.tags
}
