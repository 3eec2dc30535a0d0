# All subnets are in one zone.

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
}

override_module {
  target  = module.subnets
  outputs = { zones = ["eu-central-1a"], vpc_ids = ["vpc-1"] }
}

variables {
  name                        = "payroll"
  image                       = "ghcr.io/carillon-dev/carillon@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
  database_url                = "postgres://carillon@payroll.abcdef.eu-central-1.rds.amazonaws.com:5432/carillon"
  database_resource_id        = "db-ABCDEFGHIJKL"
  database_security_group_ids = ["sg-database"]
  vpc_id                      = "vpc-1"
  subnet_ids                  = ["subnet-a", "subnet-b"]
}

run "refused" {
  command         = plan
  expect_failures = [aws_ecs_service.this]
}

run "allowed_for_development" {
  command = plan
  variables {
    development              = true
    autoscaling_min_capacity = 1
    subnet_ids               = ["subnet-a"]
  }
}
