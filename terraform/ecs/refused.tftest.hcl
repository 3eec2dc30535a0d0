# Each run trips rules. One that trips many starts the provider once; it fails if one of them does not trip.

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
  outputs = { zones = ["eu-central-1a", "eu-central-1b"], vpc_ids = ["vpc-1"] }
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

run "one_wrong_value_of_each" {
  command = plan
  variables {
    name                          = "a-name-of-more-than-24-characters"
    image                         = "ghcr.io/carillon-dev/carillon:latest"
    cpu                           = 300
    cpu_architecture              = "RISCV"
    stop_timeout                  = 121
    database_url                  = "sqlite:/data/carillon.db"
    database_auth                 = "password"
    database_resource_id          = null
    database_password_secret_arn  = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:db-AbCdEf"
    database_cidrs                = ["db.internal"]
    subnet_ids                    = ["subnet-a"]
    egress_rules                  = { webhooks = { from_port = 8443 } }
    create_cluster                = false
    container_insights            = "on"
    capacity_provider_strategy    = { EC2 = { weight = 1 } }
    autoscaling_min_capacity      = 1
    autoscaling_pool_use          = 95
    autoscaling_overdue_seconds   = 0
    autoscaling_upcoming_fires    = { fires = 1000, add = 0 }
    autoscaling_scheduled_actions = { night = { schedule = "cron(0 22 * * ? *)", min_capacity = 0, max_capacity = 2 } }
    log_retention_in_days         = 31
    create_kms_key                = false
    secret_keys_kms_key_arns      = ["arn:aws:kms:eu-central-1:123456789012:key/1234"]
    load_balancer                 = { certificate_arn = "arn:aws:acm:eu-central-1:123456789012:certificate/1234", domain_name = "carillon.example.com" }
  }
  expect_failures = [
    var.name,
    var.image,
    var.cpu,
    var.cpu_architecture,
    var.stop_timeout,
    var.database_url,
    var.database_cidrs,
    var.subnet_ids,
    var.egress_rules,
    var.cluster_arn,
    var.container_insights,
    var.capacity_provider_strategy,
    var.autoscaling_min_capacity,
    var.autoscaling_pool_use,
    var.autoscaling_overdue_seconds,
    var.autoscaling_upcoming_fires,
    var.autoscaling_scheduled_actions,
    var.log_retention_in_days,
    var.log_kms_key_arn,
    var.secret_keys_kms_key_arns,
    var.load_balancer,
  ]
}

run "a_password_from_nowhere_and_clients_from_everywhere" {
  command = plan
  variables {
    database_auth               = "password"
    database_resource_id        = null
    database_security_group_ids = []
    egress_rules                = { webhooks = { from_port = 8443, cidr_ipv4 = "10.0.0.0/8", description = "The team's webhooks" } }
    load_balancer               = { certificate_arn = "arn:aws:acm:eu-central-1:123456789012:certificate/1234", domain_name = "carillon.example.com", allowed_cidrs = ["0.0.0.0/0"] }
  }
  expect_failures = [var.database_password_secret_arn, var.database_cidrs, var.egress_rules, var.load_balancer]
}

run "tokens_for_nobody_and_broken_tls" {
  command = plan
  variables {
    memory                   = 600
    autoscaling_max_capacity = 1
    database_resource_id     = null
    load_balancer            = { certificate_arn = "arn:aws:acm:eu-central-1:123456789012:certificate/1234", domain_name = "carillon.example.com", allowed_cidrs = ["10.0.0.0/16"], ssl_policy = "ELBSecurityPolicy-2016-08" }
  }
  expect_failures = [var.memory, var.autoscaling_max_capacity, var.database_resource_id, var.load_balancer]
}

run "deregistration_after_the_stop" {
  command = plan
  variables {
    load_balancer = { certificate_arn = "arn:aws:acm:eu-central-1:123456789012:certificate/1234", domain_name = "carillon.example.com", allowed_cidrs = ["10.0.0.0/16"], deregistration_delay = 120 }
  }
  expect_failures = [var.load_balancer]
}

run "subnets_of_another_vpc" {
  command = plan
  variables {
    vpc_id = "vpc-2"
  }
  expect_failures = [aws_ecs_service.this]
}
