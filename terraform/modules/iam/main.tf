# The policies of nodes, as JSON. They name each action and each resource. A resource ends in "*" only
# below a name that is given in full: where AWS makes up the rest (the tasks of a cluster, the streams of
# a log group), and where the user asks for all secrets below a path. The one exception is ecr:GetAuthorizationToken, which AWS allows on all resources or none;
# the token opens no repository by itself. It is there only with ecr_repository_arn.

locals {
  # The services that decrypt the secrets of jobs for a node, with their region. The domain differs between partitions.
  decrypting = sort(distinct([for arn in concat(var.job_secret_arns, var.job_parameter_arns) :
    "${split(":", arn)[2]}.${split(":", arn)[3]}.*"
  ]))

  # What nodes do themselves.
  task = [for s in [
    {
      Sid      = "LogInToDatabase"
      Action   = ["rds-db:connect"]
      Resource = compact([var.database_user_arn])
    },
    {
      Sid      = "CallFunctions"
      Action   = ["lambda:InvokeFunction"]
      Resource = var.lambda_function_arns
    },
    {
      Sid      = "SendToQueues"
      Action   = ["sqs:SendMessage"]
      Resource = var.sqs_queue_arns
    },
    {
      Sid      = "PublishToTopics"
      Action   = ["sns:Publish"]
      Resource = var.sns_topic_arns
    },
    {
      # Sessions carry the name of the app and of the job as tags.
      Sid      = "AssumeRoles"
      Action   = ["sts:AssumeRole", "sts:TagSession"]
      Resource = var.assume_role_arns
    },
    {
      Sid      = "ReadSecretsOfJobs"
      Action   = ["secretsmanager:GetSecretValue"]
      Resource = var.job_secret_arns
    },
    {
      Sid      = "ReadParametersOfJobs"
      Action   = ["ssm:GetParameter"]
      Resource = var.job_parameter_arns
    },
    {
      Sid       = "DecryptSecretsOfJobs"
      Action    = ["kms:Decrypt"]
      Resource  = length(local.decrypting) == 0 ? [] : var.kms_key_arns
      Condition = { StringLike = { "kms:ViaService" = local.decrypting } }
    },
    {
      # Nodes decrypt these keys themselves. The context is that of "carillon secret key --kms".
      Sid       = "DecryptKeysOfStoredSecrets"
      Action    = ["kms:Decrypt"]
      Resource  = var.secret_keys_kms_key_arns
      Condition = { StringEquals = { "kms:EncryptionContext:carillon" = "secret-key" } }
    },
    {
      Sid      = "ProtectTasks"
      Action   = ["ecs:GetTaskProtection", "ecs:UpdateTaskProtection"]
      Resource = var.cluster_arn == null ? [] : ["${replace(var.cluster_arn, ":cluster/", ":task/")}/*"]
    },
    {
      Sid      = "CompleteLifecycleActions"
      Action   = ["autoscaling:CompleteLifecycleAction", "autoscaling:RecordLifecycleActionHeartbeat"]
      Resource = compact([var.autoscaling_group_arn])
    },
  ] : merge({ Effect = "Allow" }, s) if length(s.Resource) > 0]

  # What happens before a node starts: by the agent of ECS, or by the machine.
  execution = [for s in [
    {
      Sid      = "ReadSecrets"
      Action   = ["secretsmanager:GetSecretValue"]
      Resource = sort(var.secret_arns)
    },
    {
      Sid      = "DecryptSecrets"
      Action   = ["kms:Decrypt"]
      Resource = var.kms_key_arns
    },
    {
      Sid      = "WriteLog"
      Action   = ["logs:CreateLogStream", "logs:PutLogEvents"]
      Resource = var.log_group_arn == null ? [] : ["${var.log_group_arn}:log-stream:*"]
    },
    {
      Sid      = "PullImage"
      Action   = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
      Resource = compact([var.ecr_repository_arn])
    },
    {
      Sid      = "LogInToRegistry"
      Action   = ["ecr:GetAuthorizationToken"]
      Resource = var.ecr_repository_arn == null ? [] : ["*"]
    },
  ] : merge({ Effect = "Allow" }, s) if length(s.Resource) > 0]

  policies = { for name, statements in {
    task      = local.task
    execution = local.execution
    node      = concat(local.task, local.execution)
  } : name => length(statements) == 0 ? null : jsonencode({ Version = "2012-10-17", Statement = statements }) }

  source = var.source_account == null ? {} : { Condition = { StringEquals = { "aws:SourceAccount" = var.source_account } } }
}
