# The database

variable "database_url" {
  description = "URL of the database without a password: postgres://carillon@HOST:5432/carillon."
  type        = string

  validation {
    condition     = !startswith(var.database_url, "sqlite:")
    error_message = "SQLite keeps its file on one machine, and the disk of a task ends with the task. On EFS its locks are not safe. Use PostgreSQL here, or terraform/vm with one machine."
  }
}

variable "database_auth" {
  description = "\"rds-iam\": nodes sign a fresh token at each connect. \"password\": the password is in database_password_secret_arn."
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
  description = "Secret in Secrets Manager with the password for database_auth = \"password\", with :KEY:: at the end for a key of a JSON secret."
  type        = string
  default     = null

  validation {
    condition     = (var.database_auth == "password") == (var.database_password_secret_arn != null)
    error_message = "database_password_secret_arn goes with database_auth = \"password\", and only with it."
  }
}

variable "database_security_group_ids" {
  description = "Security groups of the database, to which nodes may connect. Their ingress rules stay yours: allow the output security_group_id there."
  type        = list(string)
  default     = []
}

variable "database_cidrs" {
  description = "Networks of the database, to which nodes may connect, if it has no security group here."
  type        = list(string)
  default     = []

  validation {
    condition     = length(var.database_cidrs) + length(var.database_security_group_ids) > 0
    error_message = "Nodes could not reach the database: set database_security_group_ids, or database_cidrs."
  }

  validation {
    condition     = alltrue([for cidr in var.database_cidrs : can(cidrhost(cidr, 0))])
    error_message = "database_cidrs must hold networks such as 10.0.0.0/16."
  }
}

variable "kms_key_arns" {
  description = "KMS keys of your own that encrypt any of these secrets and parameters."
  type        = list(string)
  default     = []
}
