mock_provider "aws" {
  mock_data "aws_region" {
    defaults = { region = "eu-central-1" }
  }
  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }
  mock_data "aws_subnet" {
    defaults = { availability_zone = "eu-central-1a", vpc_id = "vpc-0123456789abcdef0" }
  }
  mock_data "aws_ssm_parameter" {
    defaults = { insecure_value = "ami-0123456789abcdef0" }
  }
  mock_resource "aws_ebs_volume" {
    defaults = { id = "vol-0123456789abcdef0" }
  }
  mock_data "aws_partition" {
    defaults = { partition = "aws" }
  }
  mock_resource "aws_kms_key" {
    defaults = { arn = "arn:aws:kms:eu-central-1:123456789012:key/1234" }
  }
  mock_resource "aws_sns_topic" {
    defaults = { arn = "arn:aws:sns:eu-central-1:123456789012:carillon-alarms" }
  }
  mock_resource "aws_cloudwatch_log_group" {
    defaults = { arn = "arn:aws:logs:eu-central-1:123456789012:log-group:/carillon/carillon" }
  }
}

# With terraform.tfvars as it is, but for the sums.
run "single" {
  variables {
    package       = { url = "https://github.com/carillon-dev/carillon/releases/download/v0.1.0/carillon_0.1.0_arm64.deb", sha256 = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b" }
    log_agent     = { url = "https://amazoncloudwatch-agent.s3.amazonaws.com/debian/arm64/latest/amazon-cloudwatch-agent.deb", sha256 = "d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35" }
    session_agent = { url = "https://s3.eu-central-1.amazonaws.com/amazon-ssm-eu-central-1/latest/debian_arm64/amazon-ssm-agent.deb", sha256 = "4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce" }
  }
  assert {
    condition     = aws_ebs_volume.data.encrypted && aws_ebs_volume.data.availability_zone == "eu-central-1a"
    error_message = "The volume is not encrypted, or not where the machine is."
  }
  assert {
    condition     = one(aws_dlm_lifecycle_policy.snapshots.policy_details[0].schedule[0].retain_rule).count == 48
    error_message = "There are not two days of hourly snapshots."
  }
}
