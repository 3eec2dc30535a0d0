variable "database_user_arn" {
  description = "The database user as which nodes log in with a token: arn:aws:rds-db:REGION:ACCOUNT:dbuser:RESOURCE_ID/USER. Null if they use a password."
  type        = string
  default     = null

  validation {
    condition     = var.database_user_arn == null || can(regex("^arn:aws[a-z-]*:rds-db:[a-z0-9-]+:[0-9]{12}:dbuser:(db|cluster|prx)-[A-Za-z0-9]+/[^*?/]+$", var.database_user_arn))
    error_message = "database_user_arn must be arn:aws:rds-db:REGION:ACCOUNT:dbuser:RESOURCE_ID/USER without wildcards. The resource id begins with \"db-\" or \"cluster-\"; it is not the name of the database."
  }
}

variable "lambda_function_arns" {
  description = "The Lambda functions that jobs call. With a version or alias in a target, name the function with it too."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for arn in var.lambda_function_arns : can(regex("^arn:aws[a-z-]*:lambda:[a-z0-9-]+:[0-9]{12}:function:[A-Za-z0-9_-]+(:[A-Za-z0-9_$-]+)?$", arn))])
    error_message = "lambda_function_arns must hold ARNs of functions without wildcards: arn:aws:lambda:REGION:ACCOUNT:function:NAME, optionally followed by :VERSION."
  }
}

variable "sqs_queue_arns" {
  description = "The SQS queues that jobs send to. A queue that a key of your own encrypts also needs kms:GenerateDataKey and kms:Decrypt on that key."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for arn in var.sqs_queue_arns : can(regex("^arn:aws[a-z-]*:sqs:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]+([.]fifo)?$", arn))])
    error_message = "sqs_queue_arns must hold ARNs of queues without wildcards: arn:aws:sqs:REGION:ACCOUNT:NAME."
  }
}

variable "sns_topic_arns" {
  description = "The SNS topics that jobs publish to. A topic that a key of your own encrypts also needs kms:GenerateDataKey and kms:Decrypt on that key."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for arn in var.sns_topic_arns : can(regex("^arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]+([.]fifo)?$", arn))])
    error_message = "sns_topic_arns must hold ARNs of topics without wildcards: arn:aws:sns:REGION:ACCOUNT:NAME."
  }
}

variable "assume_role_arns" {
  description = "The roles that nodes assume: those of targets in other accounts, and those that read the secrets of apps."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for arn in var.assume_role_arns : can(regex("^arn:aws[a-z-]*:iam::[0-9]{12}:role/[A-Za-z0-9+=,.@_/-]+$", arn))])
    error_message = "assume_role_arns must hold ARNs of roles without wildcards: arn:aws:iam::ACCOUNT:role/NAME."
  }
}

variable "secret_role_arn" {
  description = "The role that nodes assume to read the secrets of an app, with {app} for its name; null for none. It is only compared with assume_role_arns."
  type        = string
  default     = null

  validation {
    condition     = var.secret_role_arn == null || anytrue([for arn in var.assume_role_arns : can(regex("^${replace(replace(coalesce(var.secret_role_arn, "-"), "/([.+])/", "[$1]"), "{app}", "[A-Za-z0-9-]+")}$", arn))])
    error_message = "Nodes may not assume ${coalesce(var.secret_role_arn, "null")} (secret_role_arn): assume_role_arns holds no role of this form. List that of each app, with its name in place of {app}."
  }
}

variable "job_secret_arns" {
  description = "The secrets in Secrets Manager that jobs refer to as awssm:NAME. An ARN that ends in :secret:PATH/* stands for all below that path."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for arn in var.job_secret_arns : can(regex("^arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:[A-Za-z0-9/_+=.@!-]+(-[A-Za-z0-9]{6}|/[*])$", arn))])
    error_message = "job_secret_arns must hold complete ARNs of secrets, arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME-XXXXXX, or arn:aws:secretsmanager:REGION:ACCOUNT:secret:PATH/* for all below a path."
  }
}

variable "job_parameter_arns" {
  description = "The parameters in Parameter Store that jobs refer to as ssm:NAME. An ARN that ends in :parameter/PATH/* stands for all below that path."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for arn in var.job_parameter_arns : can(regex("^arn:aws[a-z-]*:ssm:[a-z0-9-]+:[0-9]{12}:parameter/[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*(/[*])?$", arn))])
    error_message = "job_parameter_arns must hold ARNs of parameters, arn:aws:ssm:REGION:ACCOUNT:parameter/NAME, or arn:aws:ssm:REGION:ACCOUNT:parameter/PATH/* for all below a path."
  }
}

variable "secret_keys_kms_key_arns" {
  description = "The KMS keys that encrypt the keys of stored secrets (carillon secret key --kms)."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for arn in var.secret_keys_kms_key_arns : can(regex("^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+$", arn))])
    error_message = "secret_keys_kms_key_arns must hold ARNs of keys, not of aliases: arn:aws:kms:REGION:ACCOUNT:key/ID."
  }
}

variable "secret_arns" {
  description = "The secrets that are read before a node starts: its own, and those in variables."
  type        = set(string)
  default     = []

  validation {
    condition     = alltrue([for arn in var.secret_arns : can(regex("^arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:[A-Za-z0-9/_+=.@!-]+-[A-Za-z0-9]{6}$", arn))])
    error_message = "secret_arns must hold complete ARNs of secrets without wildcards: arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME-XXXXXX."
  }
}

variable "kms_key_arns" {
  description = "The KMS keys that encrypt all of these secrets and parameters. Not needed for the keys aws/secretsmanager and aws/ssm."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for arn in var.kms_key_arns : can(regex("^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+$", arn))])
    error_message = "kms_key_arns must hold ARNs of keys, not of aliases: arn:aws:kms:REGION:ACCOUNT:key/ID."
  }
}

variable "log_group_arn" {
  description = "The log group that nodes write to; null for none."
  type        = string
  default     = null

  validation {
    condition     = var.log_group_arn == null || can(regex("^arn:aws[a-z-]*:logs:[a-z0-9-]+:[0-9]{12}:log-group:[A-Za-z0-9_/.#-]+$", var.log_group_arn))
    error_message = "log_group_arn must be the ARN of a log group without wildcards: arn:aws:logs:REGION:ACCOUNT:log-group:NAME."
  }
}

variable "cluster_arn" {
  description = "The ECS cluster in which nodes protect their tasks; null on machines."
  type        = string
  default     = null

  validation {
    condition     = var.cluster_arn == null || can(regex("^arn:aws[a-z-]*:ecs:[a-z0-9-]+:[0-9]{12}:cluster/[A-Za-z0-9_-]+$", var.cluster_arn))
    error_message = "cluster_arn must be the ARN of a cluster: arn:aws:ecs:REGION:ACCOUNT:cluster/NAME."
  }
}

variable "ecr_repository_arn" {
  description = "The ECR repository of the image; null if it comes from elsewhere."
  type        = string
  default     = null

  validation {
    condition     = var.ecr_repository_arn == null || can(regex("^arn:aws[a-z-]*:ecr:[a-z0-9-]+:[0-9]{12}:repository/[a-z0-9._/-]+$", var.ecr_repository_arn))
    error_message = "ecr_repository_arn must be the ARN of a repository without wildcards: arn:aws:ecr:REGION:ACCOUNT:repository/NAME."
  }
}

variable "autoscaling_group_arn" {
  description = "The EC2 autoscaling group whose lifecycle hook nodes complete; null on ECS."
  type        = string
  default     = null

  validation {
    condition     = var.autoscaling_group_arn == null || can(regex("^arn:aws[a-z-]*:autoscaling:[a-z0-9-]+:[0-9]{12}:autoScalingGroup:[^:]+:autoScalingGroupName/[^*]+$", var.autoscaling_group_arn))
    error_message = "autoscaling_group_arn must be the ARN of the group: arn:aws:autoscaling:REGION:ACCOUNT:autoScalingGroup:ID:autoScalingGroupName/NAME."
  }
}

variable "assumed_by" {
  description = "The service whose nodes take the role, such as ecs-tasks.amazonaws.com or ec2.amazonaws.com."
  type        = string

  validation {
    condition     = contains(["ecs-tasks.amazonaws.com", "ec2.amazonaws.com"], var.assumed_by)
    error_message = "assumed_by is \"${var.assumed_by}\". It must be ecs-tasks.amazonaws.com or ec2.amazonaws.com."
  }
}

variable "source_account" {
  description = "The account on whose behalf ECS assumes the role, which keeps other accounts from using it through ECS; null for EC2, which has no such condition."
  type        = string
  default     = null

  validation {
    condition     = var.source_account == null || can(regex("^[0-9]{12}$", var.source_account))
    error_message = "source_account must be the 12 digits of an account."
  }
}
