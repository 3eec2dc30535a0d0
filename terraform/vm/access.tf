# What the instances may do, and who may reach them.

module "iam" {
  source = "../modules/iam"

  assumed_by           = "ec2.amazonaws.com"
  database_user_arn    = var.database_user_arn
  lambda_function_arns = var.lambda_function_arns
  assume_role_arns     = var.assume_role_arns
  secret_arns          = module.config.secret_arns
  kms_key_arns         = var.secret_kms_key_arns
  log_group_arn        = local.observed ? aws_cloudwatch_log_group.this[0].arn : null
  # The part that AWS makes up is not known before the group exists, and the group is complete only when its
  # instances have used this right. Names of groups are unique in a region.
  autoscaling_group_arn = local.group_arn
}

locals {
  urls    = concat([var.package_url], local.observed ? [var.log_agent.package_url] : [], var.additional_packages[*].url)
  objects = [for url in local.urls : "arn:${data.aws_partition.this.partition}:s3:::${trimprefix(url, "s3://")}" if startswith(url, "s3://")]
}

resource "aws_iam_role" "this" {
  name_prefix          = "${var.name}-"
  description          = "Nodes of Carillon, fleet ${var.name}"
  assume_role_policy   = module.iam.assume_role_policy
  permissions_boundary = var.permissions_boundary_arn
  tags                 = var.tags
}

resource "aws_iam_role_policy" "node" {
  name   = "node"
  role   = aws_iam_role.this.id
  policy = module.iam.node_policy
}

resource "aws_iam_role_policy" "packages" {
  count = length(local.objects) > 0 ? 1 : 0
  name  = "packages"
  role  = aws_iam_role.this.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid      = "DownloadPackages"
      Effect   = "Allow"
      Action   = ["s3:GetObject"]
      Resource = local.objects
    }]
  })
}

resource "aws_iam_role_policy_attachment" "additional" {
  for_each   = var.additional_policy_arns
  role       = aws_iam_role.this.name
  policy_arn = each.value
}

resource "aws_iam_instance_profile" "this" {
  name_prefix = "${var.name}-"
  role        = aws_iam_role.this.name
  tags        = var.tags
}

resource "aws_security_group" "this" {
  name_prefix = "${var.name}-"
  description = "Nodes of Carillon, fleet ${var.name}"
  vpc_id      = var.vpc_id
  tags        = merge(var.tags, { Name = var.name })

  lifecycle {
    create_before_destroy = true
  }
}

# Jobs call any address; egress_deny and egress_private of the node restrict that, by name and after redirects.
resource "aws_vpc_security_group_egress_rule" "all" {
  for_each = { ipv4 = { cidr_ipv4 = "0.0.0.0/0" }, ipv6 = { cidr_ipv6 = "::/0" } }

  security_group_id = aws_security_group.this.id
  description       = "Targets of jobs, database, AWS and Debian's packages"
  ip_protocol       = "-1"
  cidr_ipv4         = try(each.value.cidr_ipv4, null)
  cidr_ipv6         = try(each.value.cidr_ipv6, null)
  tags              = var.tags
}

resource "aws_vpc_security_group_ingress_rule" "api_from_group" {
  for_each = var.api_ingress.security_group_ids

  security_group_id            = aws_security_group.this.id
  description                  = "API and console from ${each.key}"
  ip_protocol                  = "tcp"
  from_port                    = local.port
  to_port                      = local.port
  referenced_security_group_id = each.value
  tags                         = var.tags
}

resource "aws_vpc_security_group_ingress_rule" "api_from_cidr" {
  for_each = toset(var.api_ingress.cidrs)

  security_group_id = aws_security_group.this.id
  description       = "API and console"
  ip_protocol       = "tcp"
  from_port         = local.port
  to_port           = local.port
  cidr_ipv4         = strcontains(each.value, ":") ? null : each.value
  cidr_ipv6         = strcontains(each.value, ":") ? each.value : null
  tags              = var.tags
}
