mock_provider "aws" {
  mock_data "aws_region" {
    defaults = { region = "eu-central-1" }
  }
  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }
  mock_data "aws_partition" {
    defaults = { partition = "aws" }
  }
  mock_resource "aws_iam_role" {
    defaults = { arn = "arn:aws:iam::123456789012:role/carillon" }
  }
  mock_resource "aws_kms_key" {
    defaults = { arn = "arn:aws:kms:eu-central-1:123456789012:key/1234" }
  }
  mock_resource "aws_ecs_cluster" {
    defaults = { arn = "arn:aws:ecs:eu-central-1:123456789012:cluster/carillon" }
  }
  mock_resource "aws_sns_topic" {
    defaults = { arn = "arn:aws:sns:eu-central-1:123456789012:carillon-alarms" }
  }
  mock_resource "aws_secretsmanager_secret" {
    defaults = { arn = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:carillon/secret-keys-AbCdEf" }
  }
  mock_resource "aws_db_instance" {
    defaults = {
      endpoint           = "carillon.abcdef.eu-central-1.rds.amazonaws.com:5432"
      resource_id        = "db-ABCDEFGHIJKL"
      master_user_secret = [{ secret_arn = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:rds!db-AbCdEf", kms_key_id = "k", secret_status = "active" }]
    }
  }
  mock_resource "aws_appautoscaling_policy" {
    defaults = { arn = "arn:aws:autoscaling:eu-central-1:123456789012:scalingPolicy:1234" }
  }
}

override_module {
  target  = module.carillon.module.subnets
  outputs = { zones = ["eu-central-1a", "eu-central-1b"], vpc_ids = ["vpc-0123456789abcdef0"] }
}

# With terraform.tfvars as it is.
run "fleet" {
  assert {
    condition     = aws_vpc_security_group_ingress_rule.nodes.referenced_security_group_id == module.carillon.security_group_id
    error_message = "The database does not let the nodes in."
  }
  assert {
    condition     = aws_db_instance.this.storage_encrypted && aws_db_instance.this.iam_database_authentication_enabled && !aws_db_instance.this.publicly_accessible
    error_message = "The database is not as safe as it should be."
  }
  assert {
    condition     = length(output.carillon.alarm_arns) == 5
    error_message = "Alarms are missing."
  }
}
