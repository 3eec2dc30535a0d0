# Each run trips one validation.
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

run "a_name_for_resources" {
  command = plan
  variables {
    name = "Payroll_1"
  }
  expect_failures = [var.name]
}

run "at_least_one_instance" {
  command = plan
  variables {
    min_size    = 0
    development = true
  }
  expect_failures = [var.min_size]
}

run "two_instances_unless_for_development" {
  command = plan
  variables {
    min_size = 1
  }
  expect_failures = [var.min_size]
}

run "max_not_below_min" {
  command = plan
  variables {
    max_size = 1
  }
  expect_failures = [var.max_size]
}

run "a_balancer_that_is_let_in" {
  command = plan
  variables {
    target_group_arns = ["arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/payroll/0123456789abcdef"]
  }
  expect_failures = [var.target_group_arns]
}

run "a_package_by_https" {
  command = plan
  variables {
    package_url = "http://packages.example.com/carillon_1.0.0_arm64.deb"
  }
  expect_failures = [var.package_url]
}

run "a_package_for_the_architecture" {
  command = plan
  variables {
    package_url = "https://packages.example.com/carillon_1.0.0_amd64.deb"
  }
  expect_failures = [var.package_url]
}

run "a_checksum" {
  command = plan
  variables {
    package_sha256 = "latest"
  }
  expect_failures = [var.package_sha256]
}

run "a_log_agent_by_https" {
  command = plan
  variables {
    log_agent = { package_url = "http://packages.example.com/agent.deb", package_sha256 = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b" }
  }
  expect_failures = [var.log_agent]
}

run "a_log_agent_with_a_checksum" {
  command = plan
  variables {
    log_agent = { package_url = "https://packages.example.com/agent.deb", package_sha256 = "" }
  }
  expect_failures = [var.log_agent]
}

run "an_architecture" {
  command = plan
  variables {
    architecture   = "riscv64"
    package_url    = "https://packages.example.com/carillon.deb"
    instance_types = ["t3.small"]
  }
  expect_failures = [var.architecture]
}

run "an_image" {
  command = plan
  variables {
    ami_id = "debian-12"
  }
  expect_failures = [var.ami_id]
}

run "a_type" {
  command = plan
  variables {
    instance_types = ["large"]
  }
  expect_failures = [var.instance_types]
}

run "types_of_the_architecture" {
  command = plan
  variables {
    instance_types = ["t4g.small", "t3.small"]
  }
  expect_failures = [var.instance_types]
}

run "a_share_of_spot" {
  command = plan
  variables {
    spot = { on_demand_percentage = 120 }
  }
  expect_failures = [var.spot]
}

run "an_instance_that_stays" {
  command = plan
  variables {
    spot = { on_demand_base = 0 }
  }
  expect_failures = [var.spot]
}

run "a_drain_within_the_notice_of_spot" {
  command = plan
  variables {
    spot         = {}
    stop_timeout = 600
  }
  expect_failures = [var.spot]
}

run "room_for_the_image" {
  command = plan
  variables {
    volume_size = 4
  }
  expect_failures = [var.volume_size]
}

run "policies_by_arn" {
  command = plan
  variables {
    additional_policy_arns = { ssm = "AmazonSSMManagedInstanceCore" }
  }
  expect_failures = [var.additional_policy_arns]
}

run "time_to_get_ready" {
  command = plan
  variables {
    ready_timeout = 5
  }
  expect_failures = [var.ready_timeout]
}

run "no_file_per_instance" {
  command = plan
  variables {
    database_url = "sqlite:/var/lib/carillon/carillon.db"
  }
  expect_failures = [var.database_url]
}

run "a_password_for_password" {
  command = plan
  variables {
    database_auth        = "password"
    database_resource_id = null
  }
  expect_failures = [var.database_password_secret_arn]
}

run "a_drain_shorter_than_the_stop" {
  command = plan
  variables {
    drain_timeout = 118
  }
  expect_failures = [var.drain_timeout]
}

run "a_stop_shorter_than_a_hook" {
  command = plan
  variables {
    stop_timeout = 7200
  }
  expect_failures = [var.stop_timeout]
}

run "two_subnets" {
  command = plan
  variables {
    subnet_ids = ["subnet-0a"]
  }
  expect_failures = [var.subnet_ids]
}

run "room_for_herds" {
  command = plan
  variables {
    autoscaling_pool_use = 95
  }
  expect_failures = [var.autoscaling_pool_use]
}

run "a_second_of_patience" {
  command = plan
  variables {
    autoscaling_overdue_seconds = 0
  }
  expect_failures = [var.autoscaling_overdue_seconds]
}

run "a_herd" {
  command = plan
  variables {
    autoscaling_upcoming_fires = { fires = 5000, add = 0 }
  }
  expect_failures = [var.autoscaling_upcoming_fires]
}

run "a_retention_that_exists" {
  command = plan
  variables {
    log_retention_in_days = 31
  }
  expect_failures = [var.log_retention_in_days]
}

run "a_key_for_the_log" {
  command = plan
  variables {
    create_kms_key = false
  }
  expect_failures = [var.log_kms_key_arn]
}

run "networks_of_the_api" {
  command = plan
  variables {
    api_cidrs = ["10.0.0.0"]
  }
  expect_failures = [var.api_cidrs]
}

run "no_api_for_the_internet" {
  command = plan
  variables {
    api_cidrs = ["0.0.0.0/0"]
  }
  expect_failures = [var.api_cidrs]
}

run "a_way_to_the_database" {
  command = plan
  variables {
    database_security_group_ids = []
  }
  expect_failures = [var.database_cidrs]
}

run "networks_of_the_database" {
  command = plan
  variables {
    database_cidrs = ["10.0.0.0"]
  }
  expect_failures = [var.database_cidrs]
}

run "one_target_of_a_rule" {
  command = plan
  variables {
    egress_rules = { hooks = { from_port = 8443 } }
  }
  expect_failures = [var.egress_rules]
}

run "an_instance_for_tokens" {
  command = plan
  variables {
    database_resource_id = null
  }
  expect_failures = [var.database_resource_id]
}
