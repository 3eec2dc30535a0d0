# What a node does. modules/config checks these; docs/reference/cli.md describes them.

variable "database_url" {
  description = "URL of the PostgreSQL database without a password, such as postgres://carillon@db.example.com:5432/carillon."
  type        = string

  validation {
    condition     = !startswith(var.database_url, "sqlite:")
    error_message = "database_url is a SQLite file, and each instance would have one of its own. A group needs PostgreSQL; for SQLite see examples/vm-single-sqlite."
  }
}

variable "database_auth" {
  description = "\"rds-iam\": nodes sign a fresh token at each connect. \"password\": they take the password from database_password_secret_arn."
  type        = string
  default     = "rds-iam"
}

variable "database_resource_id" {
  description = "Resource id of the RDS instance (db-...) or Aurora cluster (cluster-...) for database_auth = \"rds-iam\"."
  type        = string
  default     = null

  validation {
    condition     = (var.database_auth == "rds-iam") == (var.database_resource_id != null)
    error_message = "database_resource_id goes with database_auth = \"rds-iam\", and only with it: it is the resource_id of aws_db_instance, or the cluster_resource_id of aws_rds_cluster."
  }
}

variable "database_password_secret_arn" {
  description = "With database_auth = \"password\": secret in Secrets Manager with the password. A key of a JSON secret is written as ARN:KEY::. Instances read it at each start of the node."
  type        = string
  default     = null

  validation {
    condition     = (var.database_auth == "password") == (var.database_password_secret_arn != null)
    error_message = "database_password_secret_arn goes with database_auth = \"password\", and only with it."
  }
}

variable "migrate" {
  description = "Whether nodes update the schema of the database when they start."
  type        = bool
  default     = true
}

variable "drain_timeout" {
  description = "Seconds for which a stopping node waits for its runs in flight."
  type        = number
  default     = 110

  validation {
    condition     = var.drain_timeout <= var.stop_timeout - 5
    error_message = "drain_timeout is ${var.drain_timeout} s and stop_timeout ${var.stop_timeout} s. A node needs 5 s after its drain to write its records: set drain_timeout to ${var.stop_timeout - 5} or less."
  }
}

variable "stop_timeout" {
  description = "Seconds after which systemd kills a stopping node. The group waits for it a minute longer before it terminates the instance."
  type        = number
  default     = 120

  # A lifecycle hook waits for two hours at most.
  validation {
    condition     = var.stop_timeout >= 10 && var.stop_timeout <= 7140 && floor(var.stop_timeout) == var.stop_timeout
    error_message = "stop_timeout is ${var.stop_timeout}. It must be a whole number of seconds from 10 to 7140, a minute less than a lifecycle hook waits."
  }
}

variable "log_level" {
  description = "debug, info, warn or error."
  type        = string
  default     = "info"
}

variable "workers" {
  description = "Attempts at once on a node; null for the default of the node."
  type        = number
  default     = null
}

variable "apps" {
  description = "The apps that the nodes serve; empty for all."
  type        = list(string)
  default     = []
}

variable "labels" {
  description = "Labels of the nodes, which jobs can require in node_labels."
  type        = map(string)
  default     = {}
}

variable "callback_url" {
  description = "URL of the API as targets reach it, such as https://carillon.example.com. Jobs with callback need it. Null: none."
  type        = string
  default     = null
}

variable "egress_private" {
  description = "Private networks (CIDR) that jobs may call, such as that of the VPC. Default: none."
  type        = list(string)
  default     = []
}

variable "egress_deny" {
  description = "Networks (CIDR) that nodes never call."
  type        = list(string)
  default     = []
}

variable "secret_keys_secret_arn" {
  description = "Secret in Secrets Manager with the keys of stored secrets, as \"carillon secret key\" prints them."
  type        = string
  default     = null
}

variable "secrets" {
  description = "Secrets of targets by the name of their variable: jobs of app crm refer to SECRET_CRM_KEY as env:SECRET_CRM_KEY. The values are ARNs of secrets in Secrets Manager."
  type        = map(string)
  default     = {}
}

variable "secret_keys_kms_key_arns" {
  description = "KMS keys that encrypt the keys of stored secrets, if \"carillon secret key --kms\" made them."
  type        = list(string)
  default     = []

  validation {
    condition     = length(var.secret_keys_kms_key_arns) == 0 || var.secret_keys_secret_arn != null
    error_message = "secret_keys_kms_key_arns goes with secret_keys_secret_arn: a secret that holds kms:ARN:BLOB, as \"carillon secret key --kms\" prints it."
  }
}

variable "job_secret_arns" {
  description = "Secrets in Secrets Manager that jobs refer to as awssm:NAME, by complete ARN; arn:aws:secretsmanager:REGION:ACCOUNT:secret:PATH/* for all below a path. Nodes read them while they run."
  type        = list(string)
  default     = []
}

variable "job_parameter_arns" {
  description = "Parameters in Parameter Store that jobs refer to as ssm:NAME, by ARN; arn:aws:ssm:REGION:ACCOUNT:parameter/PATH/* for all below a path."
  type        = list(string)
  default     = []
}

variable "secret_role_arn" {
  description = "Role that nodes assume to read awssm: and ssm: secrets of an app, such as arn:aws:iam::ACCOUNT:role/carillon-{app}; {app} stands for the name of the app. List the roles in assume_role_arns. Null: nodes read them as themselves."
  type        = string
  default     = null
}

variable "vault" {
  description = "HashiCorp Vault, for vault: secrets: address, auth (\"aws\", the role of the nodes, or \"token\"), role, mount, namespace, server_id, ca (PEM), token_secret_arn (in Secrets Manager). Null: none."
  type = object({
    address          = string
    auth             = optional(string, "aws")
    role             = optional(string)
    mount            = optional(string)
    namespace        = optional(string)
    server_id        = optional(string)
    ca               = optional(string)
    token_secret_arn = optional(string)
  })
  default = null
}

variable "kms_key_arns" {
  description = "KMS keys of your own that encrypt any of these secrets and parameters."
  type        = list(string)
  default     = []
}

variable "environment" {
  description = "More variables of the node, such as CARILLON_HOST_RATE; docs/reference/cli.md has all."
  type        = map(string)
  default     = {}
}

variable "lambda_function_arns" {
  description = "The Lambda functions that jobs call."
  type        = list(string)
  default     = []
}

variable "sqs_queue_arns" {
  description = "The SQS queues that jobs send to."
  type        = list(string)
  default     = []
}

variable "sns_topic_arns" {
  description = "The SNS topics that jobs publish to."
  type        = list(string)
  default     = []
}

variable "assume_role_arns" {
  description = "The roles that nodes assume: those of targets in other accounts, and those of secret_role_arn."
  type        = list(string)
  default     = []
}
