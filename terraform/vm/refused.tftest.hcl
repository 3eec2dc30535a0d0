# Each run trips one validation of each variable that it expects to fail.
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
  outputs = { zones = ["eu-central-1a", "eu-central-1b"], vpc_ids = ["vpc-0123456789abcdef0"] }
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

run "values_out_of_form" {
  command = plan
  variables {
    name                        = "Payroll_1"
    subnet_ids                  = ["subnet-0a"]
    min_size                    = 1
    autoscaling_pool_use        = 95
    autoscaling_overdue_seconds = 0
    autoscaling_upcoming_fires  = { fires = 5000, add = 0 }
    log_retention_in_days       = 31
    api_cidrs                   = ["10.0.0.0"]
    database_cidrs              = ["10.0.0.0"]
    egress_rules                = { hooks = { from_port = 8443 } }
    package_url                 = "http://packages.example.com/carillon_1.0.0_arm64.deb"
    package_sha256              = "latest"
    log_agent                   = { package_url = "http://packages.example.com/agent.deb", package_sha256 = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b" }
    ami_id                      = "debian-12"
    instance_types              = ["large"]
    spot                        = { on_demand_percentage = 120 }
    volume_size                 = 4
    additional_policy_arns      = { ssm = "AmazonSSMManagedInstanceCore" }
    ready_timeout               = 5
    database_url                = "sqlite:/var/lib/carillon/carillon.db"
  }
  expect_failures = [
    var.name, var.subnet_ids, var.min_size, var.autoscaling_pool_use, var.autoscaling_overdue_seconds, var.autoscaling_upcoming_fires, var.log_retention_in_days, var.api_cidrs, var.database_cidrs, var.egress_rules, var.package_url, var.package_sha256, var.log_agent, var.ami_id, var.instance_types, var.spot, var.volume_size, var.additional_policy_arns, var.ready_timeout, var.database_url,
  ]
}

run "values_that_do_not_go_together" {
  command = plan
  variables {
    min_size                    = 0
    development                 = true
    create_kms_key              = false
    api_cidrs                   = ["0.0.0.0/0"]
    database_security_group_ids = []
    egress_rules                = { webhooks = { from_port = 8443, cidr_ipv4 = "10.0.0.0/8", description = "The team's webhooks" } }
    package_url                 = "https://packages.example.com/carillon_1.0.0_amd64.deb"
    log_agent                   = { package_url = "https://packages.example.com/agent.deb", package_sha256 = "" }
    instance_types              = ["t4g.small", "t3.small"]
    spot                        = {}
    drain_timeout               = 597
    secret_keys_kms_key_arns    = ["arn:aws:kms:eu-central-1:123456789012:key/1234"]
    stop_timeout                = 600
    database_resource_id        = null
  }
  expect_failures = [
    var.min_size, var.log_kms_key_arn, var.api_cidrs, var.database_cidrs, var.egress_rules, var.package_url, var.log_agent, var.instance_types, var.spot, var.drain_timeout, var.database_resource_id, var.secret_keys_kms_key_arns,
  ]
}

run "values_that_lack_another" {
  command = plan
  variables {
    max_size             = 1
    architecture         = "riscv64"
    instance_types       = ["t3.small"]
    package_url          = "https://packages.example.com/carillon.deb"
    target_group_arns    = ["arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/payroll/0123456789abcdef"]
    spot                 = { on_demand_base = 0 }
    database_auth        = "password"
    database_resource_id = null
  }
  expect_failures = [
    var.max_size, var.architecture, var.target_group_arns, var.spot, var.database_password_secret_arn,
  ]
}

run "a_stop_longer_than_a_hook_waits" {
  command = plan
  variables {
    stop_timeout = 7200
  }
  expect_failures = [var.stop_timeout]
}
