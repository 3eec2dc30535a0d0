# Each run applies, with an AWS that is made up. The Go tests take the resources of these runs and look for
# policies and for drift between module and binary.
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
  mock_data "aws_ssm_parameter" {
    defaults = { insecure_value = "ami-0123456789abcdef0" }
  }
  mock_resource "aws_kms_key" {
    defaults = { arn = "arn:aws:kms:eu-central-1:123456789012:key/0a1b2c3d" }
  }
  mock_resource "aws_security_group" {
    defaults = { id = "sg-0a1b2c3d4e5f60718" }
  }
  mock_resource "aws_launch_template" {
    defaults = { latest_version = 7 }
  }
  mock_resource "aws_autoscaling_policy" {
    defaults = { arn = "arn:aws:autoscaling:eu-central-1:123456789012:scalingPolicy:0:autoScalingGroupName/payroll:policyName/x" }
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
  package_url                 = "https://github.com/carillon-dev/carillon/releases/download/v1.0.0/carillon_1.0.0_arm64.deb"
  package_sha256              = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"
  log_agent = {
    package_url    = "https://amazoncloudwatch-agent.s3.amazonaws.com/debian/arm64/1.300064.0b1/amazon-cloudwatch-agent.deb"
    package_sha256 = "d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35"
  }
}

run "defaults" {
  assert {
    condition     = aws_autoscaling_group.this.min_size == 2
    error_message = "The group begins with ${aws_autoscaling_group.this.min_size} instances."
  }
  assert {
    condition     = aws_autoscaling_group.this.instance_maintenance_policy[0].min_healthy_percentage == 100 && aws_autoscaling_group.this.instance_maintenance_policy[0].max_healthy_percentage == 200
    error_message = "Instances are stopped before others have taken their place."
  }
  assert {
    condition     = aws_autoscaling_group.this.instance_refresh[0].preferences[0].alarm_specification[0].alarms == tolist(["payroll-overdue", "payroll-database-unreachable"])
    error_message = "A refresh does not look at the alarms."
  }
  assert {
    condition     = aws_autoscaling_group.this.mixed_instances_policy[0].launch_template[0].launch_template_specification[0].version == "7"
    error_message = "The group does not name a version of the template, so no change would start a refresh."
  }
  assert {
    condition     = aws_autoscaling_group.this.mixed_instances_policy[0].instances_distribution[0].on_demand_percentage_above_base_capacity == 100
    error_message = "There are spot instances, which nobody asked for."
  }
  assert {
    condition     = aws_autoscaling_lifecycle_hook.terminate.heartbeat_timeout == 180 && aws_autoscaling_lifecycle_hook.terminate.default_result == "CONTINUE"
    error_message = "The hook waits ${aws_autoscaling_lifecycle_hook.terminate.heartbeat_timeout} s."
  }
  assert {
    condition     = aws_autoscaling_lifecycle_hook.launch.default_result == "ABANDON"
    error_message = "An instance whose boot fails silently enters the group."
  }
  assert {
    condition     = length(module.alarms[0].arns) == 5 && length(aws_autoscaling_policy.pool_use) == 1 && length(aws_cloudwatch_metric_alarm.scale_out_overdue) == 1
    error_message = "There are not five alarms and two scaling policies."
  }
  assert {
    condition     = length(aws_vpc_security_group_ingress_rule.api_from_group) + length(aws_vpc_security_group_ingress_rule.api_from_network) == 0
    error_message = "The instances let somebody in."
  }
  assert {
    condition     = output.ami_id == "ami-0123456789abcdef0" && output.log_group_name == "/carillon/payroll" && output.autoscaling_group_name == "payroll" && output.port == 8080
    error_message = "The outputs are wrong."
  }
}

run "all_inputs" {
  variables {
    min_size                     = 3
    max_size                     = 9
    autoscaling_pool_use         = 40
    autoscaling_overdue_seconds  = 5
    autoscaling_upcoming_fires   = { fires = 5000, add = 2 }
    alarm_overdue_seconds        = 20
    api_security_group_ids       = ["sg-0b", "sg-0c"]
    api_cidrs                    = ["10.0.0.0/16", "fd00::/64"]
    database_cidrs               = ["10.1.0.0/24", "fd01::/64"]
    egress_rules                 = { hooks = { from_port = 8443, cidr_ipv4 = "10.2.0.0/16" } }
    target_group_arns            = ["arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/payroll/0123456789abcdef"]
    alarm_actions                = ["arn:aws:sns:eu-central-1:123456789012:on-call"]
    deployment_alarms_rollback   = false
    tags                         = { team = "payroll" }
    architecture                 = "amd64"
    package_url                  = "s3://packages/carillon/carillon_1.0.0_amd64.deb"
    additional_packages          = [{ url = "s3://packages/agents/amazon-ssm-agent.deb", sha256 = "4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce" }]
    install_debian_packages      = false
    ami_id                       = "ami-0fedcba9876543210"
    instance_types               = ["t3.small", "m7i.large"]
    spot                         = {}
    volume_size                  = 20
    volume_kms_key_arn           = "arn:aws:kms:eu-central-1:123456789012:key/0a1b"
    key_name                     = "operators"
    security_group_ids           = ["sg-0d"]
    detailed_monitoring          = true
    additional_policy_arns       = { ssm = "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore" }
    ready_timeout                = 120
    log_retention_in_days        = 365
    create_kms_key               = false
    log_kms_key_arn              = "arn:aws:kms:eu-central-1:123456789012:key/0c2d"
    database_auth                = "password"
    database_resource_id         = null
    database_password_secret_arn = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:rds!db-1-AbCdEf:password::"
    migrate                      = false
    drain_timeout                = 60
    stop_timeout                 = 90
    log_level                    = "debug"
    workers                      = 256
    apps                         = ["billing", "crm"]
    labels                       = { zone = "a" }
    callback_url                 = "https://carillon.example.com"
    egress_private               = ["10.0.0.0/8"]
    egress_deny                  = ["10.9.0.0/16"]
    secret_keys_secret_arn       = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:keys-AbCdEf"
    secrets = {
      SECRET_CRM = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:crm-AbCdEf:token:AWSCURRENT:"
      SECRET_PEM = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:pem-AbCdEf"
    }
    kms_key_arns             = ["arn:aws:kms:eu-central-1:123456789012:key/0e3f"]
    environment              = { CARILLON_HOST_RATE = "50", CARILLON_NODE_NAME = "node of \"payroll\" $1 \\ `x`" }
    lambda_function_arns     = ["arn:aws:lambda:eu-central-1:123456789012:function:invoices"]
    sqs_queue_arns           = ["arn:aws:sqs:eu-central-1:123456789012:invoices"]
    sns_topic_arns           = ["arn:aws:sns:eu-central-1:123456789012:invoices"]
    assume_role_arns         = ["arn:aws:iam::210987654321:role/jobs"]
    secret_role_arn          = "arn:aws:iam::210987654321:role/jobs"
    job_secret_arns          = ["arn:aws:secretsmanager:eu-central-1:123456789012:secret:crm/*"]
    job_parameter_arns       = ["arn:aws:ssm:eu-central-1:123456789012:parameter/crm/*"]
    secret_keys_kms_key_arns = ["arn:aws:kms:eu-central-1:123456789012:key/9abc"]
    vault = {
      address          = "https://vault.internal:8443"
      auth             = "token"
      token_secret_arn = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:vault-AbCdEf:token::"
      ca               = <<-EOT
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
  }

  assert {
    condition     = length(aws_vpc_security_group_ingress_rule.api_from_group) == 2 && length(aws_vpc_security_group_ingress_rule.api_from_network) == 2
    error_message = "Not everyone is let in who should be."
  }
  assert {
    condition     = aws_autoscaling_group.this.capacity_rebalance && aws_autoscaling_group.this.mixed_instances_policy[0].instances_distribution[0].on_demand_base_capacity == 1
    error_message = "Spot instances are not replaced before AWS takes them, or there is no other instance."
  }
  assert {
    condition     = aws_autoscaling_lifecycle_hook.terminate.heartbeat_timeout == 150
    error_message = "The hook waits ${aws_autoscaling_lifecycle_hook.terminate.heartbeat_timeout} s for a node that stops within 90 s."
  }
  assert {
    condition     = aws_launch_template.this.image_id == "ami-0fedcba9876543210" && length(data.aws_ssm_parameter.debian) == 0
    error_message = "The image is not the one of ami_id."
  }
  assert {
    condition = { for s in jsondecode(aws_iam_role_policy.node.policy).Statement : s.Sid => s.Resource if can(regex("Secrets|Parameters|Roles", s.Sid)) } == {
      ReadSecrets                = [for name in ["crm", "keys", "pem", "rds!db-1", "vault"] : "arn:aws:secretsmanager:eu-central-1:123456789012:secret:${name}-AbCdEf"]
      DecryptSecrets             = ["arn:aws:kms:eu-central-1:123456789012:key/0e3f"]
      AssumeRoles                = ["arn:aws:iam::210987654321:role/jobs"]
      ReadSecretsOfJobs          = ["arn:aws:secretsmanager:eu-central-1:123456789012:secret:crm/*"]
      ReadParametersOfJobs       = ["arn:aws:ssm:eu-central-1:123456789012:parameter/crm/*"]
      DecryptSecretsOfJobs       = ["arn:aws:kms:eu-central-1:123456789012:key/0e3f"]
      DecryptKeysOfStoredSecrets = ["arn:aws:kms:eu-central-1:123456789012:key/9abc"]
    }
    error_message = "The instances may do ${aws_iam_role_policy.node.policy}"
  }
  assert {
    condition     = toset(jsondecode(aws_iam_role_policy.packages[0].policy).Statement[0].Resource) == toset(["arn:aws:s3:::packages/carillon/carillon_1.0.0_amd64.deb", "arn:aws:s3:::packages/agents/amazon-ssm-agent.deb"])
    error_message = "The instances may read other objects than their packages: ${aws_iam_role_policy.packages[0].policy}"
  }
}

run "long_drain" {
  variables {
    drain_timeout = 3600
    stop_timeout  = 3660
  }
  assert {
    condition     = aws_autoscaling_lifecycle_hook.terminate.heartbeat_timeout == 3720
    error_message = "The hook waits ${aws_autoscaling_lifecycle_hook.terminate.heartbeat_timeout} s for a node that stops within 3660 s."
  }
}

run "no_log_agent" {
  variables {
    log_agent = null
  }
  expect_failures = [check.log_agent]
}

run "fixed_size" {
  variables {
    max_size                   = 2
    deployment_alarms_rollback = false
  }
  assert {
    condition     = length(aws_autoscaling_policy.pool_use) + length(aws_autoscaling_policy.overdue) + length(aws_cloudwatch_metric_alarm.scale_out_overdue) == 0
    error_message = "A group of fixed size has scaling policies."
  }
  assert {
    condition     = length(aws_autoscaling_group.this.instance_refresh[0].preferences[0].alarm_specification) == 0
    error_message = "A refresh looks at alarms, although it should not."
  }
}
