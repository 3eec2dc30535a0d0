# The security group of nodes, and whom they may call. Who may call them differs between the modules: they add
# the ingress rules.

resource "aws_security_group" "this" {
  name_prefix = "${var.name}-node-"
  description = "Nodes of the Carillon fleet ${var.name}"
  vpc_id      = var.vpc_id
  tags        = merge(var.tags, { Name = var.name })

  lifecycle {
    create_before_destroy = true
  }
}

locals {
  everywhere = { ipv4 = "0.0.0.0/0", ipv6 = "::/0" }
  open = merge([for port, description in var.open_ports : {
    for family, network in local.everywhere : "${port}-${family}" => {
      port = tonumber(port), description = description, family = family, network = network
    }
  }]...)
}

resource "aws_vpc_security_group_egress_rule" "everywhere" {
  for_each = local.open

  security_group_id = aws_security_group.this.id
  description       = each.value.description
  cidr_ipv4         = each.value.family == "ipv4" ? each.value.network : null
  cidr_ipv6         = each.value.family == "ipv6" ? each.value.network : null
  ip_protocol       = "tcp"
  from_port         = each.value.port
  to_port           = each.value.port
  tags              = var.tags
}

resource "aws_vpc_security_group_egress_rule" "database_group" {
  count = length(var.database_security_group_ids)

  security_group_id            = aws_security_group.this.id
  description                  = "Database"
  referenced_security_group_id = var.database_security_group_ids[count.index]
  ip_protocol                  = "tcp"
  from_port                    = var.database_port
  to_port                      = var.database_port
  tags                         = var.tags
}

resource "aws_vpc_security_group_egress_rule" "database_network" {
  count = length(var.database_cidrs)

  security_group_id = aws_security_group.this.id
  description       = "Database"
  cidr_ipv4         = strcontains(var.database_cidrs[count.index], ":") ? null : var.database_cidrs[count.index]
  cidr_ipv6         = strcontains(var.database_cidrs[count.index], ":") ? var.database_cidrs[count.index] : null
  ip_protocol       = "tcp"
  from_port         = var.database_port
  to_port           = var.database_port
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
