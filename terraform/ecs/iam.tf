# The execution role is used by the agent of ECS before a node starts; the task role by the node itself.

module "iam" {
  source = "../modules/iam"

  assumed_by               = "ecs-tasks.amazonaws.com"
  source_account           = local.account
  database_user_arn        = var.database_resource_id == null ? null : "${local.arn}:rds-db:${local.region}:${local.account}:dbuser:${var.database_resource_id}/${module.config.database_user}"
  lambda_function_arns     = var.lambda_function_arns
  sqs_queue_arns           = var.sqs_queue_arns
  sns_topic_arns           = var.sns_topic_arns
  assume_role_arns         = var.assume_role_arns
  secret_role_arn          = var.secret_role_arn
  job_secret_arns          = var.job_secret_arns
  job_parameter_arns       = var.job_parameter_arns
  secret_keys_kms_key_arns = var.secret_keys_kms_key_arns
  secret_arns              = setunion(module.config.secret_arns, compact([var.repository_credentials_secret_arn]))
  kms_key_arns             = var.kms_key_arns
  log_group_arn            = "${local.arn}:logs:${local.region}:${local.account}:log-group:${local.log_group}"
  cluster_arn              = local.cluster_arn
  ecr_repository_arn       = var.ecr_repository_arn
}

resource "aws_iam_role" "execution" {
  name_prefix          = "${var.name}-start-"
  description          = "Starts the nodes of ${var.name}: reads their secrets and writes their log."
  assume_role_policy   = module.iam.assume_role_policy
  permissions_boundary = var.permissions_boundary_arn
  tags                 = local.tags
}

resource "aws_iam_role_policy" "execution" {
  name_prefix = "start-"
  role        = aws_iam_role.execution.name
  policy      = module.iam.execution_policy
}

resource "aws_iam_role" "task" {
  name_prefix          = "${var.name}-node-"
  description          = "The nodes of ${var.name}: log in to the database, call functions, protect their tasks."
  assume_role_policy   = module.iam.assume_role_policy
  permissions_boundary = var.permissions_boundary_arn
  tags                 = local.tags
}

resource "aws_iam_role_policy" "task" {
  name_prefix = "node-"
  role        = aws_iam_role.task.name
  policy      = module.iam.task_policy
}
