# For people and for Terraform. Firing needs none of it.

resource "aws_security_group" "load_balancer" {
  count = var.load_balancer == null ? 0 : 1

  name_prefix = "${var.name}-lb-"
  description = "Load balancer of the Carillon fleet ${var.name}"
  vpc_id      = var.vpc_id
  tags        = local.tags

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_vpc_security_group_ingress_rule" "network" {
  count = var.load_balancer == null ? 0 : length(var.load_balancer.allowed_cidrs)

  security_group_id = aws_security_group.load_balancer[0].id
  description       = "Clients"
  cidr_ipv4         = strcontains(var.load_balancer.allowed_cidrs[count.index], ":") ? null : var.load_balancer.allowed_cidrs[count.index]
  cidr_ipv6         = strcontains(var.load_balancer.allowed_cidrs[count.index], ":") ? var.load_balancer.allowed_cidrs[count.index] : null
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
  tags              = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "group" {
  count = var.load_balancer == null ? 0 : length(var.load_balancer.allowed_security_group_ids)

  security_group_id            = aws_security_group.load_balancer[0].id
  description                  = "Clients"
  referenced_security_group_id = var.load_balancer.allowed_security_group_ids[count.index]
  ip_protocol                  = "tcp"
  from_port                    = 443
  to_port                      = 443
  tags                         = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "prefix_list" {
  count = var.load_balancer == null ? 0 : length(var.load_balancer.allowed_prefix_list_ids)

  security_group_id = aws_security_group.load_balancer[0].id
  description       = "Clients"
  prefix_list_id    = var.load_balancer.allowed_prefix_list_ids[count.index]
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
  tags              = local.tags
}

resource "aws_vpc_security_group_egress_rule" "load_balancer" {
  count = var.load_balancer == null ? 0 : 1

  security_group_id            = aws_security_group.load_balancer[0].id
  description                  = "Nodes"
  referenced_security_group_id = module.network.security_group_id
  ip_protocol                  = "tcp"
  from_port                    = module.config.port
  to_port                      = module.config.port
  tags                         = local.tags
}

resource "aws_lb" "this" {
  count = var.load_balancer == null ? 0 : 1

  name                       = var.name
  internal                   = true
  load_balancer_type         = "application"
  subnets                    = coalesce(var.load_balancer.subnet_ids, var.subnet_ids)
  security_groups            = [aws_security_group.load_balancer[0].id]
  drop_invalid_header_fields = true
  enable_deletion_protection = var.load_balancer.deletion_protection
  tags                       = local.tags

  dynamic "access_logs" {
    for_each = var.load_balancer.access_logs_bucket == null ? [] : [var.load_balancer.access_logs_bucket]
    content {
      enabled = true
      bucket  = access_logs.value
      prefix  = var.name
    }
  }
}

resource "aws_lb_target_group" "this" {
  count = var.load_balancer == null ? 0 : 1

  name_prefix          = "caril-"
  vpc_id               = var.vpc_id
  target_type          = "ip"
  protocol             = "HTTP"
  port                 = module.config.port
  deregistration_delay = var.load_balancer.deregistration_delay
  tags                 = local.tags

  # ECS replaces a node that fails this check, and no node is ready without the database. A failover of the
  # database must therefore fit into the ten checks.
  health_check {
    path                = "/readyz"
    matcher             = "200"
    interval            = 15
    timeout             = 5
    healthy_threshold   = 2
    unhealthy_threshold = 10
  }

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_lb_listener" "this" {
  count = var.load_balancer == null ? 0 : 1

  load_balancer_arn = aws_lb.this[0].arn
  port              = 443
  protocol          = "HTTPS"
  ssl_policy        = var.load_balancer.ssl_policy
  certificate_arn   = var.load_balancer.certificate_arn
  tags              = local.tags

  default_action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.this[0].arn
  }
}
