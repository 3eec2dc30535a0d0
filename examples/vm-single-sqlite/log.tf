locals {
  log_group = "/carillon/${var.name}"
}

resource "aws_cloudwatch_log_group" "this" {
  name              = local.log_group
  retention_in_days = 30
  kms_key_id        = aws_kms_key.log.arn
}

# The log holds no payloads and no secrets, but names of jobs and addresses of targets.
resource "aws_kms_key" "log" {
  description         = "Log of ${var.name}"
  enable_key_rotation = true

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        # As AWS makes it for every key: IAM policies of the account decide who manages and reads it.
        Effect    = "Allow"
        Principal = { AWS = "arn:${data.aws_partition.this.partition}:iam::${data.aws_caller_identity.this.account_id}:root" }
        Action    = "kms:*"
        Resource  = "*" # this key
      },
      {
        Effect    = "Allow"
        Principal = { Service = "logs.${data.aws_region.this.region}.amazonaws.com" }
        Action    = ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"]
        Resource  = "*" # this key
        Condition = {
          ArnEquals = {
            "kms:EncryptionContext:aws:logs:arn" = "arn:${data.aws_partition.this.partition}:logs:${data.aws_region.this.region}:${data.aws_caller_identity.this.account_id}:log-group:${local.log_group}"
          }
        }
      },
    ]
  })
}
