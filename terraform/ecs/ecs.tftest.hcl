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
  mock_resource "aws_ecs_cluster" {
    defaults = { arn = "arn:aws:ecs:eu-central-1:123456789012:cluster/payroll" }
  }
  mock_resource "aws_iam_role" {
    defaults = { arn = "arn:aws:iam::123456789012:role/payroll" }
  }
  mock_resource "aws_kms_key" {
    defaults = { arn = "arn:aws:kms:eu-central-1:123456789012:key/1234" }
  }
  mock_resource "aws_ecs_task_definition" {
    defaults = { arn = "arn:aws:ecs:eu-central-1:123456789012:task-definition/payroll:1" }
  }
  mock_resource "aws_appautoscaling_policy" {
    defaults = { arn = "arn:aws:autoscaling:eu-central-1:123456789012:scalingPolicy:1234" }
  }
  mock_resource "aws_lb" {
    defaults = { arn = "arn:aws:elasticloadbalancing:eu-central-1:123456789012:loadbalancer/app/payroll/1234" }
  }
  mock_resource "aws_lb_target_group" {
    defaults = { arn = "arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/payroll/1234" }
  }
  mock_resource "aws_service_discovery_service" {
    defaults = { arn = "arn:aws:servicediscovery:eu-central-1:123456789012:service/srv-1234" }
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

# The least that a fleet needs.
run "least" {
  assert {
    condition     = length(aws_lb.this) == 0 && length(aws_vpc_security_group_ingress_rule.api) == 0 && output.endpoint == null
    error_message = "Something can connect to the nodes, although nothing asks for it."
  }
  assert {
    condition     = aws_ecs_service.this.deployment_minimum_healthy_percent == 100 && aws_ecs_service.this.deployment_maximum_percent == 200
    error_message = "Old nodes stop before new ones run."
  }
  assert {
    condition     = aws_appautoscaling_target.this.resource_id == "service/payroll/payroll" && aws_appautoscaling_target.this.min_capacity == 2
    error_message = "Autoscaling is bound to ${aws_appautoscaling_target.this.resource_id} with ${aws_appautoscaling_target.this.min_capacity} nodes at least."
  }
  assert {
    condition     = [for s in jsondecode(aws_iam_role_policy.task.policy).Statement : s.Sid] == ["LogInToDatabase", "ProtectTasks"]
    error_message = "The task role may do more than it needs: ${aws_iam_role_policy.task.policy}"
  }
  assert {
    condition     = [for s in jsondecode(aws_iam_role_policy.execution.policy).Statement : s.Sid] == ["WriteLog"]
    error_message = "The execution role may do more than it needs: ${aws_iam_role_policy.execution.policy}"
  }
}

# Every input that creates or changes something.
run "everything" {
  variables {
    tags                              = { team = "payroll" }
    cpu                               = 1024
    memory                            = 2048
    cpu_architecture                  = "X86_64"
    workers                           = 256
    apps                              = ["billing", "crm"]
    labels                            = { zone = "a" }
    log_level                         = "debug"
    environment                       = { CARILLON_HOST_RATE = "50" }
    secrets                           = { SECRET_CRM = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:crm-AbCdEf:token::" }
    secret_keys_secret_arn            = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:carillon/keys-AbCdEf"
    repository_credentials_secret_arn = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:registry-AbCdEf"
    ecr_repository_arn                = "arn:aws:ecr:eu-central-1:123456789012:repository/carillon"
    database_cidrs                    = ["10.1.0.0/16"]
    kms_key_arns                      = ["arn:aws:kms:eu-central-1:123456789012:key/5678"]
    api_security_group_ids            = ["sg-prometheus"]
    egress_rules                      = { webhooks = { from_port = 8443, cidr_ipv4 = "10.2.0.0/16" }, vault = { from_port = 8200, cidr_ipv4 = "10.4.0.0/16" } }
    callback_url                      = "https://carillon.example.com"
    egress_private                    = ["10.0.0.0/8"]
    egress_deny                       = ["10.3.0.0/16"]
    capacity_provider_strategy        = { FARGATE = { weight = 1, base = 2 }, FARGATE_SPOT = { weight = 3 } }
    lambda_function_arns              = ["arn:aws:lambda:eu-central-1:123456789012:function:report"]
    sqs_queue_arns                    = ["arn:aws:sqs:eu-central-1:123456789012:orders"]
    sns_topic_arns                    = ["arn:aws:sns:eu-central-1:123456789012:orders"]
    assume_role_arns                  = ["arn:aws:iam::210987654321:role/carillon-calls"]
    secret_role_arn                   = "arn:aws:iam::210987654321:role/{app}-calls"
    job_secret_arns                   = ["arn:aws:secretsmanager:eu-central-1:123456789012:secret:crm/*"]
    job_parameter_arns                = ["arn:aws:ssm:eu-central-1:123456789012:parameter/crm/token"]
    secret_keys_kms_key_arns          = ["arn:aws:kms:eu-central-1:123456789012:key/9abc"]
    vault = {
      address   = "https://vault.internal:8200"
      role      = "carillon-{app}"
      mount     = "aws"
      namespace = "payroll"
      server_id = "vault.internal"
      ca        = <<-EOT
        -----BEGIN CERTIFICATE-----
        MIIBkTCCATegAwIBAgIULZKCumE0WQ5i7fsdh3THsMiB+dQwCgYIKoZIzj0EAwIw
        HTEbMBkGA1UEAwwSVmF1bHQgb2YgdGhlIHRlc3RzMCAXDTI2MTEyNzE1MzgzOFoY
        DzIxMjYxMTAzMTUzODM4WjAdMRswGQYDVQQDDBJWYXVsdCBvZiB0aGUgdGVzdHMw
        WTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAQGpRRzscOzLHiCu37j6/JROCdQE16Y
        jlkGuYFk322sd4uGER6YVmygksLQPrwJ69bLXfmj6IQiOTFE08sBACgro1MwUTAd
        BgNVHQ4EFgQUD7OkRCPIlJ0Zxehmescn2CxSLKQwHwYDVR0jBBgwFoAUD7OkRCPI
        lJ0Zxehmescn2CxSLKQwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBF
        AiB0KYJBOKfa8Ufr4HPkScSjvTFV1Kl5J9oD596Gim+GNQIhAI3KfmUZBc3Ejjjp
        SzOL6eajaz6AIttKeVkOJAIxCm2U
        -----END CERTIFICATE-----
      EOT
    }
    autoscaling_upcoming_fires    = { fires = 50000, add = 3 }
    autoscaling_scheduled_actions = { morning = { schedule = "cron(0 7 * * ? *)", min_capacity = 4, max_capacity = 8 } }
    alarm_actions                 = ["arn:aws:sns:eu-central-1:123456789012:on-call"]
    load_balancer = {
      certificate_arn            = "arn:aws:acm:eu-central-1:123456789012:certificate/1234"
      domain_name                = "carillon.example.com"
      allowed_cidrs              = ["10.0.0.0/16"]
      allowed_security_group_ids = ["sg-office"]
      allowed_prefix_list_ids    = ["pl-1234"]
      access_logs_bucket         = "logs"
    }
    service_discovery = { namespace_id = "ns-1234", namespace_name = "internal" }
  }
  assert {
    condition     = output.endpoint == "https://carillon.example.com"
    error_message = "The endpoint is ${output.endpoint}."
  }
  assert {
    condition = { for s in jsondecode(aws_iam_role_policy.task.policy).Statement : s.Sid => one(s.Resource) } == {
      LogInToDatabase            = "arn:aws:rds-db:eu-central-1:123456789012:dbuser:db-ABCDEFGHIJKL/carillon"
      CallFunctions              = "arn:aws:lambda:eu-central-1:123456789012:function:report"
      SendToQueues               = "arn:aws:sqs:eu-central-1:123456789012:orders"
      PublishToTopics            = "arn:aws:sns:eu-central-1:123456789012:orders"
      AssumeRoles                = "arn:aws:iam::210987654321:role/carillon-calls"
      ReadSecretsOfJobs          = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:crm/*"
      ReadParametersOfJobs       = "arn:aws:ssm:eu-central-1:123456789012:parameter/crm/token"
      DecryptSecretsOfJobs       = "arn:aws:kms:eu-central-1:123456789012:key/5678"
      DecryptKeysOfStoredSecrets = "arn:aws:kms:eu-central-1:123456789012:key/9abc"
      ProtectTasks               = "arn:aws:ecs:eu-central-1:123456789012:task/payroll/*"
    }
    error_message = "The task role may do ${aws_iam_role_policy.task.policy}"
  }
  assert {
    condition = jsondecode(aws_iam_role_policy.execution.policy).Statement[0].Resource == [
      "arn:aws:secretsmanager:eu-central-1:123456789012:secret:carillon/keys-AbCdEf", "arn:aws:secretsmanager:eu-central-1:123456789012:secret:crm-AbCdEf", "arn:aws:secretsmanager:eu-central-1:123456789012:secret:registry-AbCdEf",
    ]
    error_message = "The execution role reads ${aws_iam_role_policy.execution.policy}"
  }
  assert {
    condition     = jsondecode(aws_ecs_task_definition.this.container_definitions)[0].repositoryCredentials.credentialsParameter == "arn:aws:secretsmanager:eu-central-1:123456789012:secret:registry-AbCdEf"
    error_message = "The image is pulled without credentials."
  }
  assert {
    condition     = aws_lb.this[0].internal && aws_lb.this[0].drop_invalid_header_fields && aws_lb_listener.this[0].protocol == "HTTPS"
    error_message = "The load balancer is open, or speaks plain HTTP."
  }
  assert {
    condition     = toset(keys(output.alarm_arns)) == toset(["dead-man", "overdue", "rolled-back", "saturated", "database-unreachable"])
    error_message = "The alarms are ${join(", ", keys(output.alarm_arns))}."
  }
}

run "a_password_and_an_existing_cluster" {
  variables {
    database_auth                = "password"
    database_resource_id         = null
    database_password_secret_arn = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:db-AbCdEf:password::"
    create_cluster               = false
    cluster_arn                  = "arn:aws:ecs:eu-central-1:123456789012:cluster/main"
    create_kms_key               = false
    log_kms_key_arn              = "arn:aws:kms:eu-central-1:123456789012:key/5678"
    service_discovery            = { namespace_id = "ns-1234", namespace_name = "internal" }
    vault                        = { address = "https://vault.example.com", auth = "token", token_secret_arn = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:vault-AbCdEf" }
  }
  assert {
    condition     = length(aws_ecs_cluster.this) == 0 && aws_appautoscaling_target.this.resource_id == "service/main/payroll"
    error_message = "The service is not in the existing cluster."
  }
  assert {
    condition     = [for s in jsondecode(aws_iam_role_policy.task.policy).Statement : one(s.Resource)] == ["arn:aws:ecs:eu-central-1:123456789012:task/main/*"]
    error_message = "The task role may do ${aws_iam_role_policy.task.policy}"
  }
  assert {
    condition     = output.endpoint == "http://payroll.internal:8080"
    error_message = "The endpoint is ${output.endpoint}."
  }
}
