variables {
  assumed_by               = "ecs-tasks.amazonaws.com"
  source_account           = "123456789012"
  database_user_arn        = "arn:aws:rds-db:eu-central-1:123456789012:dbuser:db-ABCDEF/carillon"
  lambda_function_arns     = ["arn:aws:lambda:eu-central-1:123456789012:function:report"]
  sqs_queue_arns           = ["arn:aws:sqs:eu-central-1:123456789012:orders.fifo"]
  sns_topic_arns           = ["arn:aws:sns:eu-central-1:123456789012:orders"]
  assume_role_arns         = ["arn:aws:iam::210987654321:role/carillon-calls"]
  secret_role_arn          = "arn:aws:iam::210987654321:role/carillon-{app}"
  job_secret_arns          = ["arn:aws:secretsmanager:eu-central-1:123456789012:secret:billing/*"]
  job_parameter_arns       = ["arn:aws:ssm:us-east-1:123456789012:parameter/billing/token"]
  secret_keys_kms_key_arns = ["arn:aws:kms:eu-central-1:123456789012:key/5678"]
  secret_arns              = ["arn:aws:secretsmanager:eu-central-1:123456789012:secret:crm-AbCdEf"]
  kms_key_arns             = ["arn:aws:kms:eu-central-1:123456789012:key/1234"]
  log_group_arn            = "arn:aws:logs:eu-central-1:123456789012:log-group:payroll"
  cluster_arn              = "arn:aws:ecs:eu-central-1:123456789012:cluster/main"
  ecr_repository_arn       = "arn:aws:ecr:eu-central-1:123456789012:repository/carillon"
}

run "each_permission_on_its_resource" {
  assert {
    condition = { for s in jsondecode(output.task_policy).Statement : s.Sid => one(s.Resource) } == {
      LogInToDatabase            = "arn:aws:rds-db:eu-central-1:123456789012:dbuser:db-ABCDEF/carillon"
      CallFunctions              = "arn:aws:lambda:eu-central-1:123456789012:function:report"
      SendToQueues               = "arn:aws:sqs:eu-central-1:123456789012:orders.fifo"
      PublishToTopics            = "arn:aws:sns:eu-central-1:123456789012:orders"
      AssumeRoles                = "arn:aws:iam::210987654321:role/carillon-calls"
      ReadSecretsOfJobs          = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:billing/*"
      ReadParametersOfJobs       = "arn:aws:ssm:us-east-1:123456789012:parameter/billing/token"
      DecryptSecretsOfJobs       = "arn:aws:kms:eu-central-1:123456789012:key/1234"
      DecryptKeysOfStoredSecrets = "arn:aws:kms:eu-central-1:123456789012:key/5678"
      ProtectTasks               = "arn:aws:ecs:eu-central-1:123456789012:task/main/*"
    }
    error_message = "The policy is ${output.task_policy}."
  }
  assert {
    condition = { for s in jsondecode(output.task_policy).Statement : s.Sid => s.Condition if can(s.Condition) } == {
      DecryptSecretsOfJobs       = { StringLike = { "kms:ViaService" = ["secretsmanager.eu-central-1.*", "ssm.us-east-1.*"] } }
      DecryptKeysOfStoredSecrets = { StringEquals = { "kms:EncryptionContext:carillon" = "secret-key" } }
    }
    error_message = "Nodes may decrypt more than what they read: ${output.task_policy}."
  }
  assert {
    condition = { for s in jsondecode(output.execution_policy).Statement : s.Sid => one(s.Resource) } == {
      ReadSecrets     = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:crm-AbCdEf"
      DecryptSecrets  = "arn:aws:kms:eu-central-1:123456789012:key/1234"
      WriteLog        = "arn:aws:logs:eu-central-1:123456789012:log-group:payroll:log-stream:*"
      PullImage       = "arn:aws:ecr:eu-central-1:123456789012:repository/carillon"
      LogInToRegistry = "*"
    }
    error_message = "The policy is ${output.execution_policy}."
  }
  assert {
    condition     = length(jsondecode(output.node_policy).Statement) == 15
    error_message = "The policy of a machine is not both policies: ${output.node_policy}."
  }
  assert {
    condition     = jsondecode(output.assume_role_policy).Statement[0].Condition.StringEquals["aws:SourceAccount"] == "123456789012"
    error_message = "Any account may use the role: ${output.assume_role_policy}."
  }
}

run "nothing_to_allow" {
  variables {
    assumed_by               = "ec2.amazonaws.com"
    source_account           = null
    database_user_arn        = null
    lambda_function_arns     = []
    sqs_queue_arns           = []
    sns_topic_arns           = []
    assume_role_arns         = []
    secret_role_arn          = null
    job_secret_arns          = []
    job_parameter_arns       = []
    secret_keys_kms_key_arns = []
    secret_arns              = []
    kms_key_arns             = []
    log_group_arn            = null
    cluster_arn              = null
    ecr_repository_arn       = null
  }
  assert {
    condition     = output.task_policy == null && output.execution_policy == null && output.node_policy == null
    error_message = "A policy without statements, which AWS refuses."
  }
}

# The keys of a node's own secrets are not for the node to use.
run "no_decryption_without_secrets_of_jobs" {
  variables {
    job_secret_arns    = []
    job_parameter_arns = []
  }
  assert {
    condition     = !contains([for s in jsondecode(output.task_policy).Statement : s.Sid], "DecryptSecretsOfJobs")
    error_message = "The policy is ${output.task_policy}."
  }
}

run "a_machine_completes_its_hook" {
  variables {
    autoscaling_group_arn = "arn:aws:autoscaling:eu-central-1:123456789012:autoScalingGroup:1234:autoScalingGroupName/payroll"
  }
  assert {
    condition     = contains([for s in jsondecode(output.node_policy).Statement : s.Sid], "CompleteLifecycleActions")
    error_message = "The policy is ${output.node_policy}."
  }
}
