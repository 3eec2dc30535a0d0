# Two machines or more over PostgreSQL on RDS. README.md has the steps.

module "carillon" {
  source = "git::https://github.com/carillon-dev/carillon.git//terraform/vm?ref=v0.1.0"

  name                        = var.name
  vpc_id                      = var.vpc_id
  subnet_ids                  = var.subnet_ids
  associate_public_ip_address = var.associate_public_ip_address

  package_url    = var.package.url
  package_sha256 = var.package.sha256
  log_agent      = { package_url = var.log_agent.url, package_sha256 = var.log_agent.sha256 }

  # The way to the machines, without SSH: aws ssm start-session
  additional_packages    = [var.session_agent]
  additional_policy_arns = { sessions = "arn:${data.aws_partition.this.partition}:iam::aws:policy/AmazonSSMManagedInstanceCore" }

  database_url                = "postgres://carillon@${aws_db_instance.this.endpoint}/carillon"
  database_resource_id        = aws_db_instance.this.resource_id
  database_security_group_ids = [aws_security_group.database.id]
  secret_keys_secret_arn      = aws_secretsmanager_secret.keys.arn

  api_security_group_ids = var.shell_security_group_ids
  alarm_actions          = [aws_sns_topic.alarms.arn]

  # Apps whose bounds list these may call them, and jobs of app crm refer to this secret as env:SECRET_CRM_KEY.
  # lambda_function_arns = ["arn:aws:lambda:eu-central-1:123456789012:function:report"]
  # secrets              = { SECRET_CRM_KEY = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:crm-AbCdEf" }
}

# The keys of stored secrets. The value is put in by hand, so that it is in no state.
resource "aws_secretsmanager_secret" "keys" {
  name        = "${var.name}/secret-keys"
  description = "Keys of the secrets that jobs store in Carillon"
}

data "aws_caller_identity" "this" {}
data "aws_partition" "this" {}
