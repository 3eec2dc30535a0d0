# Subnets that are not where they should be.
mock_provider "aws" {
  mock_data "aws_region" {
    defaults = { region = "eu-central-1" }
  }
  mock_data "aws_partition" {
    defaults = { partition = "aws" }
  }
  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }
}

override_module {
  target  = module.subnets
  outputs = { zones = ["eu-central-1a"], vpc_ids = ["vpc-0123456789abcdef0"] }
}

variables {
  name                        = "payroll"
  vpc_id                      = "vpc-0123456789abcdef0"
  subnet_ids                  = ["subnet-0a", "subnet-0b"]
  database_url                = "postgres://carillon@db.internal:5432/carillon"
  database_resource_id        = "db-ABCDEFGHIJKL"
  database_security_group_ids = ["sg-0d1e2f3a4b5c60718"]
  package_url                 = "https://packages.example.com/carillon_1.0.0_arm64.deb"
  package_sha256              = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"
  log_agent = {
    package_url    = "https://packages.example.com/amazon-cloudwatch-agent.deb"
    package_sha256 = "d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35"
  }
}

run "two_zones" {
  command         = plan
  expect_failures = [aws_autoscaling_group.this]
}

run "one_zone_is_enough_for_development" {
  command = plan
  variables {
    development = true
    min_size    = 1
  }
  assert {
    condition     = aws_autoscaling_group.this.min_size == 1
    error_message = "There is more than one instance."
  }
}

run "subnets_of_the_vpc" {
  command = plan
  variables {
    development = true
    vpc_id      = "vpc-0fedcba9876543210"
  }
  expect_failures = [aws_autoscaling_group.this]
}
