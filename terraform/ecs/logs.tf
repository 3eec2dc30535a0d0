# The log holds no payloads and no secrets, but names of jobs and addresses of targets.

resource "aws_kms_key" "log" {
  count = var.create_kms_key ? 1 : 0

  description         = "Log of the Carillon fleet ${var.name}"
  enable_key_rotation = true
  tags                = local.tags

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        # As AWS makes it for every key: IAM policies of the account decide who manages and reads it.
        Sid       = "Account"
        Effect    = "Allow"
        Principal = { AWS = "${local.arn}:iam::${local.account}:root" }
        Action    = "kms:*"
        Resource  = "*" # this key
      },
      {
        Sid       = "CloudWatchLogs"
        Effect    = "Allow"
        Principal = { Service = "logs.${local.region}.amazonaws.com" }
        Action = [
          "kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey", "kms:GenerateDataKeyWithoutPlaintext",
          "kms:ReEncryptFrom", "kms:ReEncryptTo",
        ]
        Resource = "*" # this key
        Condition = {
          ArnEquals = { "kms:EncryptionContext:aws:logs:arn" = "${local.arn}:logs:${local.region}:${local.account}:log-group:${local.log_group}" }
        }
      },
    ]
  })
}

resource "aws_cloudwatch_log_group" "this" {
  name              = local.log_group
  retention_in_days = var.log_retention_in_days
  kms_key_id        = var.create_kms_key ? aws_kms_key.log[0].arn : var.log_kms_key_arn
  tags              = local.tags
}
