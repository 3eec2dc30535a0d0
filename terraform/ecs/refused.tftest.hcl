# Each run trips one rule.

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
  mock_data "aws_subnet" {
    defaults = { vpc_id = "vpc-1", availability_zone = "eu-central-1a" }
  }
}

override_data {
  target = data.aws_subnet.this[1]
  values = { vpc_id = "vpc-1", availability_zone = "eu-central-1b" }
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

run "a_name_for_resources" {
  command = plan
  variables {
    name = "a-name-of-more-than-24-characters"
  }
  expect_failures = [var.name]
}

run "an_image_by_digest" {
  command = plan
  variables {
    image = "ghcr.io/carillon-dev/carillon:latest"
  }
  expect_failures = [var.image]
}

run "a_cpu_of_fargate" {
  command = plan
  variables {
    cpu = 300
  }
  expect_failures = [var.cpu]
}

run "memory_that_goes_with_the_cpu" {
  command = plan
  variables {
    cpu    = 512
    memory = 512
  }
  expect_failures = [var.memory]
}

run "an_architecture_of_the_image" {
  command = plan
  variables {
    cpu_architecture = "RISCV"
  }
  expect_failures = [var.cpu_architecture]
}

run "a_stop_that_fargate_waits_for" {
  command = plan
  variables {
    stop_timeout = 121
  }
  expect_failures = [var.stop_timeout]
}

run "no_file_as_database" {
  command = plan
  variables {
    database_url                 = "sqlite:/data/carillon.db"
    database_auth                = "password"
    database_resource_id         = null
    database_password_secret_arn = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:db-AbCdEf"
  }
  expect_failures = [var.database_url]
}

run "a_resource_id_for_tokens" {
  command = plan
  variables {
    database_resource_id = null
  }
  expect_failures = [var.database_resource_id]
}

run "a_secret_for_a_password" {
  command = plan
  variables {
    database_auth        = "password"
    database_resource_id = null
  }
  expect_failures = [var.database_password_secret_arn]
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
    database_cidrs = ["db.internal"]
  }
  expect_failures = [var.database_cidrs]
}

run "two_subnets" {
  command = plan
  variables {
    subnet_ids = ["subnet-a"]
  }
  expect_failures = [var.subnet_ids]
}

run "one_target_of_a_rule" {
  command = plan
  variables {
    egress_rules = { webhooks = { from_port = 8443 } }
  }
  expect_failures = [var.egress_rules]
}

run "a_cluster_if_none_is_created" {
  command = plan
  variables {
    create_cluster = false
  }
  expect_failures = [var.cluster_arn]
}

run "insights_that_ecs_knows" {
  command = plan
  variables {
    container_insights = "on"
  }
  expect_failures = [var.container_insights]
}

run "capacity_of_fargate" {
  command = plan
  variables {
    capacity_provider_strategy = { EC2 = { weight = 1 } }
  }
  expect_failures = [var.capacity_provider_strategy]
}

run "two_nodes" {
  command = plan
  variables {
    autoscaling_min_capacity = 1
  }
  expect_failures = [var.autoscaling_min_capacity]
}

run "a_maximum_above_the_minimum" {
  command = plan
  variables {
    autoscaling_min_capacity = 7
  }
  expect_failures = [var.autoscaling_max_capacity]
}

run "room_to_scale" {
  command = plan
  variables {
    autoscaling_pool_use = 95
  }
  expect_failures = [var.autoscaling_pool_use]
}

run "time_until_overdue" {
  command = plan
  variables {
    autoscaling_overdue_seconds = 0
  }
  expect_failures = [var.autoscaling_overdue_seconds]
}

run "nodes_for_a_herd" {
  command = plan
  variables {
    autoscaling_upcoming_fires = { fires = 1000, add = 0 }
  }
  expect_failures = [var.autoscaling_upcoming_fires]
}

run "two_nodes_at_all_times" {
  command = plan
  variables {
    autoscaling_scheduled_actions = { night = { schedule = "cron(0 22 * * ? *)", min_capacity = 0, max_capacity = 2 } }
  }
  expect_failures = [var.autoscaling_scheduled_actions]
}

run "a_retention_of_cloudwatch" {
  command = plan
  variables {
    log_retention_in_days = 31
  }
  expect_failures = [var.log_retention_in_days]
}

run "a_key_if_none_is_created" {
  command = plan
  variables {
    create_kms_key = false
  }
  expect_failures = [var.log_kms_key_arn]
}

run "somebody_who_may_connect" {
  command = plan
  variables {
    load_balancer = { certificate_arn = "arn:aws:acm:eu-central-1:123456789012:certificate/1234", domain_name = "carillon.example.com" }
  }
  expect_failures = [var.load_balancer]
}

run "private_clients" {
  command = plan
  variables {
    load_balancer = { certificate_arn = "arn:aws:acm:eu-central-1:123456789012:certificate/1234", domain_name = "carillon.example.com", allowed_cidrs = ["0.0.0.0/0"] }
  }
  expect_failures = [var.load_balancer]
}

run "tls_that_is_not_broken" {
  command = plan
  variables {
    load_balancer = { certificate_arn = "arn:aws:acm:eu-central-1:123456789012:certificate/1234", domain_name = "carillon.example.com", allowed_cidrs = ["10.0.0.0/16"], ssl_policy = "ELBSecurityPolicy-2016-08" }
  }
  expect_failures = [var.load_balancer]
}

run "deregistration_before_the_stop" {
  command = plan
  variables {
    load_balancer = { certificate_arn = "arn:aws:acm:eu-central-1:123456789012:certificate/1234", domain_name = "carillon.example.com", allowed_cidrs = ["10.0.0.0/16"], deregistration_delay = 120 }
  }
  expect_failures = [var.load_balancer]
}

run "two_zones" {
  command = plan
  variables {
    subnet_ids = ["subnet-a", "subnet-b"]
  }
  override_data {
    target = data.aws_subnet.this[1]
    values = { vpc_id = "vpc-1", availability_zone = "eu-central-1a" }
  }
  expect_failures = [aws_ecs_service.this]
}

run "subnets_of_the_vpc" {
  command = plan
  variables {
    vpc_id = "vpc-2"
  }
  expect_failures = [aws_ecs_service.this]
}
