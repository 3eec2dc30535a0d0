# The inputs of a node, in one place for terraform/ecs and terraform/vm. The modules pass theirs on.

variable "name" {
  description = "Name of the fleet: the dimension Fleet of its metrics in CloudWatch."
  type        = string

  validation {
    condition     = can(regex("^[a-z]([a-z0-9-]{0,30}[a-z0-9])?$", var.name))
    error_message = "The name is \"${var.name}\". Use 1 to 32 of a-z, 0-9 and \"-\", beginning with a letter and not ending with \"-\"; names of AWS resources are made of it."
  }
}

variable "database_url" {
  description = "URL of the database without a password, such as postgres://carillon@db.example.com:5432/carillon; sqlite:PATH on a single machine."
  type        = string

  validation {
    condition     = can(regex("^(postgres|postgresql)://|^sqlite:/", var.database_url))
    error_message = "The database URL begins with neither \"postgres://\" nor \"sqlite:/\"."
  }

  # The message does not repeat the URL: it would put the password into logs.
  validation {
    condition     = !can(regex("^postgres(ql)?://[^/@]*:[^/@]*@|[?&](password|passfile)=", var.database_url))
    error_message = "The database URL holds a password, which would be stored in the state and shown by the console of AWS. Leave it out, and set database_auth = \"rds-iam\" or database_password_secret_arn."
  }

  validation {
    condition     = !can(regex("^postgres", var.database_url)) || can(regex("^postgres(ql)?://[^/:@?]+(:[^/@]*)?@[^/:@?,]+(:[0-9]+)?(,[^/@?]+)?/[^/?]+", var.database_url))
    error_message = "The database URL needs a user, a host and the name of the database: postgres://USER@HOST:5432/NAME."
  }
}

variable "database_auth" {
  description = "How nodes log in: \"rds-iam\" signs a fresh token at each connect; \"password\" takes the password from database_password_secret_arn, or from a file that you bring to a machine."
  type        = string
  default     = "rds-iam"

  validation {
    condition     = contains(["rds-iam", "password"], var.database_auth)
    error_message = "database_auth is \"${var.database_auth}\". It must be \"rds-iam\" or \"password\"."
  }

  validation {
    condition     = var.database_auth != "rds-iam" || !can(regex("^sqlite:", var.database_url))
    error_message = "SQLite knows no database_auth \"rds-iam\". Set database_auth = \"password\"; a file needs none."
  }

  validation {
    condition     = var.database_auth != "rds-iam" || !can(regex("[?&]sslmode=", var.database_url)) || can(regex("[?&]sslmode=verify-full(&|$)", var.database_url))
    error_message = "The database URL has an sslmode other than verify-full. With database_auth = \"rds-iam\" nodes would give their token to any server that asks: leave it out."
  }
}

variable "database_password_secret_arn" {
  description = "Secret in Secrets Manager with the password of the database user. A key of a JSON secret is written as ARN:KEY::. Null with database_auth = \"rds-iam\"."
  type        = string
  default     = null

  validation {
    condition     = var.database_password_secret_arn == null || can(regex("^arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:[A-Za-z0-9/_+=.@!-]+-[A-Za-z0-9]{6}(:[^:*]*:[^:*]*:[^:*]*)?$", var.database_password_secret_arn))
    error_message = "database_password_secret_arn is not the complete ARN of a secret: arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME-XXXXXX, with the six characters at its end, optionally followed by :KEY::."
  }

  validation {
    condition     = var.database_password_secret_arn == null || var.database_auth == "password"
    error_message = "database_password_secret_arn is set, and database_auth is \"rds-iam\". Nodes log in one way: remove one of the two."
  }
}

variable "migrate" {
  description = "Whether nodes update the schema of the database when they start."
  type        = bool
  default     = true
}

variable "listen" {
  description = "Address and port of the HTTP API."
  type        = string
  default     = "0.0.0.0:8080"

  validation {
    condition     = can(regex("^[^ ]+:[0-9]{1,5}$", var.listen))
    error_message = "listen is \"${var.listen}\". It must be ADDRESS:PORT, such as 0.0.0.0:8080."
  }
}

variable "stop_timeout" {
  description = "Seconds from SIGTERM until the platform kills a node."
  type        = number
  default     = 120

  validation {
    condition     = var.stop_timeout >= 10 && floor(var.stop_timeout) == var.stop_timeout
    error_message = "stop_timeout is ${var.stop_timeout}. It must be a whole number of seconds, at least 10."
  }
}

variable "drain_timeout" {
  description = "Seconds for which a stopping node waits for its runs in flight."
  type        = number
  default     = 110

  validation {
    condition     = var.drain_timeout >= 1 && floor(var.drain_timeout) == var.drain_timeout
    error_message = "drain_timeout is ${var.drain_timeout}. It must be a whole number of seconds, at least 1."
  }

  validation {
    condition     = var.drain_timeout <= var.stop_timeout - 5
    error_message = "drain_timeout is ${var.drain_timeout} s and stop_timeout ${var.stop_timeout} s. A node needs 5 s after its drain to write its records: set drain_timeout to ${var.stop_timeout - 5} or less."
  }
}

variable "task_protection" {
  description = "Whether a node asks ECS to keep its task while an attempt runs that outlasts the drain."
  type        = bool
  default     = false
}

variable "emf" {
  description = "Whether nodes write their metrics into the log, from where CloudWatch takes them. Alarms and autoscaling need them."
  type        = bool
  default     = true
}

variable "log_level" {
  description = "debug, info, warn or error."
  type        = string
  default     = "info"

  validation {
    condition     = contains(["debug", "info", "warn", "error"], var.log_level)
    error_message = "log_level is \"${var.log_level}\". It must be debug, info, warn or error."
  }
}

variable "workers" {
  description = "Attempts at once on a node; null for the default of the node."
  type        = number
  default     = null

  validation {
    condition     = var.workers == null || try(var.workers >= 1 && var.workers <= 10000 && floor(var.workers) == var.workers, false)
    error_message = "workers must be a whole number from 1 to 10,000."
  }
}

variable "apps" {
  description = "The apps that the nodes serve; empty for all."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for app in var.apps : can(regex("^[^,\\s]+$", app))])
    error_message = "A name in apps is empty, or has a comma or a space in it."
  }
}

variable "labels" {
  description = "Labels of the nodes, which jobs can require in node_labels."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for name, value in var.labels : can(regex("^[^,=\\s]+$", name)) && can(regex("^[^,\\s]+$", value))])
    error_message = "A label has an empty name or value, or one with a comma or a space in it, or an \"=\" in its name."
  }
}

variable "callback_url" {
  description = "URL of the API as targets reach it, such as https://carillon.example.com. Jobs with callback need it. Null: none."
  type        = string
  default     = null

  validation {
    condition     = var.callback_url == null || can(regex("^https?://[^/?#@ ]+(/[^?# ]*)?$", var.callback_url))
    error_message = "callback_url is \"${coalesce(var.callback_url, "null")}\". It must be a URL such as https://carillon.example.com, without user, query and fragment."
  }
}

variable "egress_private" {
  description = "Private networks (CIDR) that jobs may call, such as that of the VPC. Default: none."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for cidr in coalesce(var.egress_private, []) : can(cidrhost(cidr, 0))])
    error_message = "egress_private must be a list of networks such as 10.0.0.0/16."
  }
}

variable "egress_deny" {
  description = "Networks (CIDR) that nodes never call."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for cidr in var.egress_deny : can(cidrhost(cidr, 0))])
    error_message = "egress_deny must be a list of networks such as 10.0.0.0/16."
  }
}

variable "secret_keys_secret_arn" {
  description = "Secret in Secrets Manager with the keys of stored secrets, as \"carillon secret key\" prints them. Null if no job stores a secret in Carillon."
  type        = string
  default     = null

  validation {
    condition     = var.secret_keys_secret_arn == null || can(regex("^arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:[A-Za-z0-9/_+=.@!-]+-[A-Za-z0-9]{6}(:[^:*]*:[^:*]*:[^:*]*)?$", var.secret_keys_secret_arn))
    error_message = "secret_keys_secret_arn is not the complete ARN of a secret: arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME-XXXXXX, with the six characters at its end, optionally followed by :KEY::."
  }
}

variable "secrets" {
  description = "Secrets of targets by the name of their variable: jobs of app crm refer to SECRET_CRM_KEY as env:SECRET_CRM_KEY. The values are ARNs of secrets in Secrets Manager."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for name in keys(var.secrets) : can(regex("^SECRET_[A-Z0-9_]+$", name))])
    error_message = "A name in secrets does not have the form SECRET_NAME, in capitals. Jobs can refer to no other variable."
  }

  validation {
    condition     = alltrue([for arn in values(var.secrets) : can(regex("^arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:[A-Za-z0-9/_+=.@!-]+-[A-Za-z0-9]{6}(:[^:*]*:[^:*]*:[^:*]*)?$", arn))])
    error_message = "A value in secrets is not the complete ARN of a secret: arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME-XXXXXX, with the six characters at its end, optionally followed by :KEY::."
  }
}

variable "secret_role_arn" {
  description = "Role that nodes assume to read awssm: and ssm: secrets of an app; {app} stands for the name of the app. Null: nodes read them as themselves."
  type        = string
  default     = null

  validation {
    condition     = var.secret_role_arn == null || can(regex("^arn:aws[a-z-]*:iam::[0-9]{12}:role/([A-Za-z0-9+=,.@_/-]|[{]app[}])+$", var.secret_role_arn))
    error_message = "secret_role_arn is \"${coalesce(var.secret_role_arn, "null")}\". It must be the ARN of a role, such as arn:aws:iam::123456789012:role/carillon-{app}."
  }
}

variable "vault" {
  description = "HashiCorp Vault, for vault: secrets, with the values of the flags --vault-... in docs/reference/cli.md. ca holds the authorities of its certificate in PEM, token_secret_arn a secret in Secrets Manager with the token for auth = \"token\". Null: none."
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

  validation {
    condition     = var.vault == null || can(regex("^https://[^/?#@ ]+(/[^?# ]*)?$", var.vault.address))
    error_message = "vault.address must be a URL such as https://vault.example.com:8200, without user and query: nodes send tokens there, and take secrets from it."
  }

  validation {
    condition     = var.vault == null || try(contains(["aws", "token"], var.vault.auth), false)
    error_message = "vault.auth is \"${coalesce(try(var.vault.auth, null), "null")}\". It must be \"aws\", the role of the nodes, or \"token\"."
  }

  validation {
    condition     = try(var.vault.auth, "") != "aws" || try(var.vault.role != null && var.vault.token_secret_arn == null, false)
    error_message = "vault.auth = \"aws\" needs the role of Vault to log in with, such as role = \"carillon\", and no token_secret_arn."
  }

  validation {
    condition     = try(var.vault.auth, "") != "token" || try(var.vault.token_secret_arn != null && var.vault.role == null, false)
    error_message = "vault.auth = \"token\" needs token_secret_arn, and no role: a token has its policies already."
  }

  validation {
    condition     = try(var.vault.token_secret_arn, null) == null || can(regex("^arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:[A-Za-z0-9/_+=.@!-]+-[A-Za-z0-9]{6}(:[^:*]*:[^:*]*:[^:*]*)?$", var.vault.token_secret_arn))
    error_message = "vault.token_secret_arn is not the complete ARN of a secret: arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME-XXXXXX, with the six characters at its end, optionally followed by :KEY::."
  }

  validation {
    condition     = try(var.vault.mount, null) == null || can(regex("^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$", var.vault.mount))
    error_message = "vault.mount is \"${coalesce(try(var.vault.mount, null), "null")}\". It must be the path of the auth method, such as aws, without a \"/\" at its ends."
  }

  validation {
    condition     = try(var.vault.ca, null) == null || can(regex("-----BEGIN CERTIFICATE-----", var.vault.ca))
    error_message = "vault.ca holds no certificate in PEM. Give the text, such as file(\"vault-ca.pem\"), not the name of a file."
  }
}

variable "environment" {
  description = "More variables of the node, such as CARILLON_HOST_RATE; docs/reference/cli.md has all."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for name in keys(var.environment) : can(regex("^(CARILLON_[A-Z0-9_]+|GOMEMLIMIT|GODEBUG|HTTPS_PROXY|NO_PROXY)$", name))])
    error_message = "A name in environment begins with something other than CARILLON_. Secrets of targets belong into secrets."
  }

  validation {
    condition     = length(setintersection(keys(var.environment), ["CARILLON_DATABASE_PASSWORD", "CARILLON_SECRET_KEYS", "CARILLON_TOKEN", "CARILLON_VAULT_TOKEN"])) == 0
    error_message = "environment would show a password or key in plain text: use database_password_secret_arn, secret_keys_secret_arn and token_secret_arn of vault."
  }

  validation {
    condition     = length(setintersection(keys(var.environment), keys(local.all))) == 0
    error_message = "environment sets ${join(", ", setintersection(keys(var.environment), keys(local.all)))}, which the module sets from the input of that name."
  }
}
