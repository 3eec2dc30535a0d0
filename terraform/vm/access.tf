# What the instances may do.

module "iam" {
  source = "../modules/iam"

  assumed_by               = "ec2.amazonaws.com"
  database_user_arn        = var.database_resource_id == null ? null : "${local.arn}:rds-db:${local.region}:${local.account}:dbuser:${var.database_resource_id}/${module.config.database_user}"
  lambda_function_arns     = var.lambda_function_arns
  sqs_queue_arns           = var.sqs_queue_arns
  sns_topic_arns           = var.sns_topic_arns
  assume_role_arns         = var.assume_role_arns
  secret_role_arn          = var.secret_role_arn
  job_secret_arns          = var.job_secret_arns
  job_parameter_arns       = var.job_parameter_arns
  secret_keys_kms_key_arns = var.secret_keys_kms_key_arns
  secret_arns              = module.config.secret_arns
  kms_key_arns             = var.kms_key_arns
  log_group_arn            = local.observed ? "${local.arn}:logs:${local.region}:${local.account}:log-group:${local.log_group}" : null
  # The part that AWS makes up is not known before the group exists, and the group is complete only when its
  # instances have used this right. Names of groups are unique in a region.
  autoscaling_group_arn = local.group_arn
}

locals {
  urls    = concat([var.package_url], local.observed ? [var.log_agent.package_url] : [], var.additional_packages[*].url)
  objects = [for url in local.urls : "${local.arn}:s3:::${trimprefix(url, "s3://")}" if startswith(url, "s3://")]
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
