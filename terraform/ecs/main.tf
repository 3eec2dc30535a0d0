# A fleet of Carillon nodes on Fargate. The database is not in here: its state and its life are longer.

data "aws_region" "this" {}
data "aws_caller_identity" "this" {}
data "aws_partition" "this" {}

module "subnets" {
  source     = "../modules/subnets"
  subnet_ids = var.subnet_ids
}

locals {
  region  = data.aws_region.this.region
  account = data.aws_caller_identity.this.account_id
  arn     = "arn:${data.aws_partition.this.partition}"

  cluster_name = var.create_cluster ? var.name : element(split("/", var.cluster_arn), 1)
  cluster_arn  = var.create_cluster ? "${local.arn}:ecs:${local.region}:${local.account}:cluster/${var.name}" : var.cluster_arn
  log_group    = "/carillon/${var.name}"
  tags         = var.tags
}

module "config" {
  source = "../modules/config"

  name                         = var.name
  database_url                 = var.database_url
  database_auth                = var.database_auth
  database_password_secret_arn = var.database_password_secret_arn
  stop_timeout                 = var.stop_timeout
  drain_timeout                = var.drain_timeout
  task_protection              = true
  log_level                    = var.log_level
  workers                      = var.workers
  apps                         = var.apps
  labels                       = var.labels
  callback_url                 = var.callback_url
  egress_private               = var.egress_private
  egress_deny                  = var.egress_deny
  secret_keys_secret_arn       = var.secret_keys_secret_arn
  secrets                      = var.secrets
  secret_role_arn              = var.secret_role_arn
  vault                        = var.vault
  environment                  = var.environment
}

module "alarms" {
  source = "../modules/alarms"

  name            = var.name
  alarm_actions   = var.alarm_actions
  overdue_seconds = var.alarm_overdue_seconds
  tags            = local.tags
}
