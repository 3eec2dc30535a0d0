# Instances call out. Nothing reaches them but the groups in api_security_group_ids and the networks in api_cidrs.

locals {
  anywhere = { ipv4 = "0.0.0.0/0", ipv6 = "::/0" }
}

resource "aws_security_group" "this" {
  name_prefix = "${var.name}-node-"
  description = "Nodes of the Carillon fleet ${var.name}"
  vpc_id      = var.vpc_id
  tags        = merge(var.tags, { Name = var.name })

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_vpc_security_group_ingress_rule" "api_from_group" {
  count = length(var.api_security_group_ids)

  security_group_id            = aws_security_group.this.id
  description                  = "API and console"
  referenced_security_group_id = var.api_security_group_ids[count.index]
  ip_protocol                  = "tcp"
  from_port                    = module.config.port
  to_port                      = module.config.port
  tags                         = var.tags
}

resource "aws_vpc_security_group_ingress_rule" "api_from_network" {
  count = length(var.api_cidrs)

  security_group_id = aws_security_group.this.id
  description       = "API and console"
  cidr_ipv4         = strcontains(var.api_cidrs[count.index], ":") ? null : var.api_cidrs[count.index]
  cidr_ipv6         = strcontains(var.api_cidrs[count.index], ":") ? var.api_cidrs[count.index] : null
  ip_protocol       = "tcp"
  from_port         = module.config.port
  to_port           = module.config.port
  tags              = var.tags
}

# Webhooks, Lambda and the other services of AWS, and Carillon's package.
resource "aws_vpc_security_group_egress_rule" "https" {
  for_each = local.anywhere

  security_group_id = aws_security_group.this.id
  description       = "Targets and services of AWS"
  cidr_ipv4         = each.key == "ipv4" ? each.value : null
  cidr_ipv6         = each.key == "ipv6" ? each.value : null
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
  tags              = var.tags
}

# Debian's images take packages and their updates by HTTP. apt checks their signatures.
resource "aws_vpc_security_group_egress_rule" "debian" {
  for_each = local.anywhere

  security_group_id = aws_security_group.this.id
  description       = "Packages of Debian"
  cidr_ipv4         = each.key == "ipv4" ? each.value : null
  cidr_ipv6         = each.key == "ipv6" ? each.value : null
  ip_protocol       = "tcp"
  from_port         = 80
  to_port           = 80
  tags              = var.tags
}

resource "aws_vpc_security_group_egress_rule" "database_group" {
  count = length(var.database_security_group_ids)

  security_group_id            = aws_security_group.this.id
  description                  = "Database"
  referenced_security_group_id = var.database_security_group_ids[count.index]
  ip_protocol                  = "tcp"
  from_port                    = module.config.database_port
  to_port                      = module.config.database_port
  tags                         = var.tags
}

resource "aws_vpc_security_group_egress_rule" "database_network" {
  count = length(var.database_cidrs)

  security_group_id = aws_security_group.this.id
  description       = "Database"
  cidr_ipv4         = strcontains(var.database_cidrs[count.index], ":") ? null : var.database_cidrs[count.index]
  cidr_ipv6         = strcontains(var.database_cidrs[count.index], ":") ? var.database_cidrs[count.index] : null
  ip_protocol       = "tcp"
  from_port         = module.config.database_port
  to_port           = module.config.database_port
  tags              = var.tags
}

resource "aws_vpc_security_group_egress_rule" "other" {
  for_each = var.egress_rules

  security_group_id            = aws_security_group.this.id
  description                  = coalesce(each.value.description, each.key)
  cidr_ipv4                    = each.value.cidr_ipv4
  cidr_ipv6                    = each.value.cidr_ipv6
  prefix_list_id               = each.value.prefix_list_id
  referenced_security_group_id = each.value.referenced_security_group_id
  ip_protocol                  = each.value.ip_protocol
  from_port                    = each.value.from_port
  to_port                      = coalesce(each.value.to_port, each.value.from_port)
  tags                         = var.tags
}
