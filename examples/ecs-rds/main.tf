# Two nodes or more on Fargate over PostgreSQL on RDS. README.md has the steps.

module "carillon" {
  source = "git::https://github.com/carillon-dev/carillon.git//terraform/ecs?ref=v0.1.0"

  name             = var.name
  image            = var.image
  vpc_id           = var.vpc_id
  subnet_ids       = var.subnet_ids
  assign_public_ip = var.assign_public_ip

  database_url                = "postgres://carillon@${aws_db_instance.this.endpoint}/carillon"
  database_resource_id        = aws_db_instance.this.resource_id
  database_security_group_ids = [aws_security_group.database.id]
  secret_keys_secret_arn      = aws_secretsmanager_secret.keys.arn

  api_security_group_ids = var.shell_security_group_ids
  alarm_actions          = [aws_sns_topic.alarms.arn]

  # Apps whose bounds list these may call them, and jobs of app crm refer to this secret as env:SECRET_CRM_KEY.
  # lambda_function_arns = ["arn:aws:lambda:eu-central-1:123456789012:function:report"]
  # secrets              = { SECRET_CRM_KEY = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:crm-AbCdEf" }

  # For people and pipelines in other networks. Point a record of the domain at the output load_balancer.
  # load_balancer = {
  #   domain_name     = "carillon.example.com"
  #   certificate_arn = "arn:aws:acm:eu-central-1:123456789012:certificate/..."
  #   allowed_cidrs   = ["10.0.0.0/8"]
  # }
}

# The keys of stored secrets. The value is put in by hand, so that it is in no state.
resource "aws_secretsmanager_secret" "keys" {
  name        = "${var.name}/secret-keys"
  description = "Keys of the secrets that jobs store in Carillon"
}

resource "aws_sns_topic" "alarms" {
  name              = "${var.name}-alarms"
  kms_master_key_id = aws_kms_key.alarms.id
}

resource "aws_sns_topic_subscription" "email" {
  count = var.alarm_email == null ? 0 : 1

  topic_arn = aws_sns_topic.alarms.arn
  protocol  = "email"
  endpoint  = var.alarm_email
}

# CloudWatch cannot publish to a topic that is encrypted with the key that AWS manages.
resource "aws_kms_key" "alarms" {
  description         = "Topic of the alarms of ${var.name}"
  enable_key_rotation = true

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Effect    = "Allow"
        Principal = { AWS = "arn:${data.aws_partition.this.partition}:iam::${data.aws_caller_identity.this.account_id}:root" }
        Action    = "kms:*"
        Resource  = "*" # this key
      },
      {
        Effect    = "Allow"
        Principal = { Service = "cloudwatch.amazonaws.com" }
        Action    = ["kms:Decrypt", "kms:GenerateDataKey"]
        Resource  = "*" # this key
        Condition = { StringEquals = { "aws:SourceAccount" = data.aws_caller_identity.this.account_id } }
      },
    ]
  })
}

data "aws_caller_identity" "this" {}
data "aws_partition" "this" {}
