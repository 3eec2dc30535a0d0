# Names are those of the modules in terraform-aws-modules/ecs where the meaning is the same.

variable "name" {
  description = "Name of the fleet and of what the module creates; also the dimension Fleet of the metrics."
  type        = string
  default     = "carillon"

  validation {
    condition     = can(regex("^[a-z]([a-z0-9-]{0,22}[a-z0-9])?$", var.name))
    error_message = "name is \"${var.name}\". Use 1 to 24 of a-z, 0-9 and \"-\", beginning with a letter and not ending with \"-\": load balancers and roles limit the length of their names."
  }
}

variable "tags" {
  description = "Tags of all resources and tasks."
  type        = map(string)
  default     = {}
}

variable "development" {
  description = "Allow one node, or nodes in one zone. Nothing fires while that node is replaced or its zone is down."
  type        = bool
  default     = false
}

# The node

variable "image" {
  description = "Image by digest, such as ghcr.io/carillon-dev/carillon@sha256:... The release notes have the digest of each version."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9.:/_-]+@sha256:[0-9a-f]{64}$", var.image))
    error_message = "image is \"${var.image}\". Name it by digest, IMAGE@sha256:DIGEST: behind a tag the image may change, and then two nodes of a fleet run different programs."
  }
}

variable "cpu" {
  description = "Processor of a node in units of 1/1024 vCPU."
  type        = number
  default     = 256

  validation {
    condition     = contains([256, 512, 1024, 2048, 4096, 8192, 16384], var.cpu)
    error_message = "cpu is ${var.cpu}. Fargate offers 256, 512, 1024, 2048, 4096, 8192 and 16384."
  }
}

variable "memory" {
  description = "Memory of a node in MiB."
  type        = number
  default     = 512

  validation {
    condition = contains(lookup({
      256   = [512, 1024, 2048]
      512   = range(1024, 4097, 1024)
      1024  = range(2048, 8193, 1024)
      2048  = range(4096, 16385, 1024)
      4096  = range(8192, 30721, 1024)
      8192  = range(16384, 61441, 4096)
      16384 = range(32768, 122881, 8192)
    }, var.cpu, []), var.memory)
    error_message = "Fargate has no task with cpu ${var.cpu} and memory ${var.memory}. A cpu of 256 goes with 512, 1024 or 2048 MiB, a larger one with 2 to 8 times as many MiB as it has units."
  }
}

variable "cpu_architecture" {
  description = "ARM64 or X86_64. The image has both; ARM64 costs a fifth less."
  type        = string
  default     = "ARM64"

  validation {
    condition     = contains(["ARM64", "X86_64"], var.cpu_architecture)
    error_message = "cpu_architecture is \"${var.cpu_architecture}\". It must be ARM64 or X86_64."
  }
}

variable "stop_timeout" {
  description = "Seconds from SIGTERM until ECS kills a node."
  type        = number
  default     = 120

  validation {
    condition     = var.stop_timeout <= 120
    error_message = "stop_timeout is ${var.stop_timeout} s. Fargate waits for 120 s at most. Longer attempts are covered by task protection, which is always on."
  }
}

variable "drain_timeout" {
  description = "Seconds for which a stopping node waits for its runs in flight; at most stop_timeout - 5."
  type        = number
  default     = 110
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

variable "log_level" {
  description = "debug, info, warn or error."
  type        = string
  default     = "info"
}

variable "environment" {
  description = "More variables of the node, such as CARILLON_HOST_RATE; docs/reference/cli.md has all."
  type        = map(string)
  default     = {}
}

variable "secrets" {
  description = "Secrets of targets by variable: jobs refer to SECRET_CRM as env:SECRET_CRM. Values are complete ARNs in Secrets Manager, with :KEY:: at the end for a key of a JSON secret."
  type        = map(string)
  default     = {}
}

variable "secret_keys_secret_arn" {
  description = "Secret in Secrets Manager with the keys of stored secrets, as \"carillon secret key\" prints them. Null if no job stores a secret in Carillon."
  type        = string
  default     = null
}

variable "repository_credentials_secret_arn" {
  description = "Secret in Secrets Manager with user and password of the image's registry. Null for public images and for ECR."
  type        = string
  default     = null
}

variable "ecr_repository_arn" {
  description = "The ECR repository of the image; null if it comes from elsewhere."
  type        = string
  default     = null
}

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
  description = "KMS keys of your own that encrypt the secrets."
  type        = list(string)
  default     = []
}

# The network

variable "vpc_id" {
  description = "VPC of the nodes."
  type        = string
}

variable "subnet_ids" {
  description = "Subnets of the nodes, in two zones or more. Private ones need a NAT gateway, or endpoints for what nodes call."
  type        = list(string)

  validation {
    condition     = length(var.subnet_ids) >= 2 || (var.development && length(var.subnet_ids) == 1)
    error_message = "subnet_ids must hold two subnets in two zones, so that a zone that fails stops no fire. One is allowed with development = true."
  }
}

variable "assign_public_ip" {
  description = "Whether nodes get public addresses: for public subnets without a NAT gateway. Nothing can connect to them from outside either way."
  type        = bool
  default     = false
}

variable "security_group_ids" {
  description = "More security groups of the nodes."
  type        = list(string)
  default     = []
}

variable "api_security_group_ids" {
  description = "Security groups that may connect to the API of the nodes directly, without the load balancer."
  type        = list(string)
  default     = []
}

variable "egress_rules" {
  description = "Other traffic of the nodes than HTTPS and the database, by a name of your choice, such as webhooks on port 8443 of a private network."
  type = map(object({
    from_port   = number
    to_port     = optional(number)
    ip_protocol = optional(string, "tcp")
    cidr_ipv4   = optional(string)
    cidr_ipv6   = optional(string)
    # Either a network, or one of these.
    prefix_list_id               = optional(string)
    referenced_security_group_id = optional(string)
    description                  = optional(string)
  }))
  default = {}

  validation {
    condition = alltrue([for rule in values(var.egress_rules) : length([
      for target in [rule.cidr_ipv4, rule.cidr_ipv6, rule.prefix_list_id, rule.referenced_security_group_id] : target if target != null
    ]) == 1])
    error_message = "A rule in egress_rules needs exactly one of cidr_ipv4, cidr_ipv6, prefix_list_id and referenced_security_group_id."
  }
}

variable "egress_private" {
  description = "The only private networks (CIDR) that nodes call; null for all."
  type        = list(string)
  default     = null
}

variable "egress_deny" {
  description = "Networks (CIDR) that nodes never call."
  type        = list(string)
  default     = []
}

# The service

variable "create_cluster" {
  description = "Whether the module creates an ECS cluster; false to use cluster_arn."
  type        = bool
  default     = true
}

variable "cluster_arn" {
  description = "An existing ECS cluster, with the capacity providers of Fargate, for create_cluster = false."
  type        = string
  default     = null

  validation {
    condition     = var.create_cluster == (var.cluster_arn == null)
    error_message = "cluster_arn goes with create_cluster = false, and only with it."
  }
}

variable "container_insights" {
  description = "Container Insights of the cluster that the module creates: disabled, enabled or enhanced. It costs extra, and Carillon needs none of it."
  type        = string
  default     = "disabled"

  validation {
    condition     = contains(["disabled", "enabled", "enhanced"], var.container_insights)
    error_message = "container_insights is \"${var.container_insights}\". It must be disabled, enabled or enhanced."
  }
}

variable "capacity_provider_strategy" {
  description = "How nodes are spread over FARGATE and FARGATE_SPOT. Keep a base on FARGATE: AWS may take away all spot tasks at once, with two minutes' notice."
  type = map(object({
    weight = number
    base   = optional(number, 0)
  }))
  default = { FARGATE = { weight = 1 } }

  validation {
    condition     = length(var.capacity_provider_strategy) > 0 && alltrue([for name in keys(var.capacity_provider_strategy) : contains(["FARGATE", "FARGATE_SPOT"], name)])
    error_message = "capacity_provider_strategy must hold FARGATE, FARGATE_SPOT or both."
  }
}

variable "deployment_alarms_rollback" {
  description = "Whether a deployment is rolled back when one of the alarms overdue and database-unreachable rings. The circuit breaker rolls back a deployment whose nodes do not become healthy in any case."
  type        = bool
  default     = true
}

variable "wait_for_steady_state" {
  description = "Whether apply waits until the new nodes run and the old ones have stopped, and fails if they do not."
  type        = bool
  default     = true
}

variable "permissions_boundary_arn" {
  description = "Permissions boundary of the two roles."
  type        = string
  default     = null
}

variable "lambda_function_arns" {
  description = "The Lambda functions that jobs call. If a target names a version or alias, add it to the ARN."
  type        = list(string)
  default     = []
}

variable "assume_role_arns" {
  description = "The roles that nodes assume to call functions of other accounts."
  type        = list(string)
  default     = []
}

# Scaling

variable "autoscaling_min_capacity" {
  description = "The least number of nodes."
  type        = number
  default     = 2

  validation {
    condition     = var.autoscaling_min_capacity >= (var.development ? 1 : 2)
    error_message = "autoscaling_min_capacity is ${var.autoscaling_min_capacity}. A scheduler cannot scale to zero, and one node alone is a gap whenever it is replaced: take 2 or more. 1 is allowed with development = true."
  }
}

variable "autoscaling_max_capacity" {
  description = "The largest number of nodes; the same as autoscaling_min_capacity for a fixed number."
  type        = number
  default     = 6

  validation {
    condition     = var.autoscaling_max_capacity >= var.autoscaling_min_capacity
    error_message = "autoscaling_max_capacity is ${var.autoscaling_max_capacity}, less than the minimum of ${var.autoscaling_min_capacity}."
  }
}

variable "autoscaling_pool_use" {
  description = "Share of the nodes' capacity in use, in percent, that the number of nodes is adjusted to."
  type        = number
  default     = 60

  validation {
    condition     = var.autoscaling_pool_use >= 10 && var.autoscaling_pool_use <= 90
    error_message = "autoscaling_pool_use is ${var.autoscaling_pool_use}. It must be 10 to 90 percent: with more there is no room until a new node runs."
  }
}

variable "autoscaling_overdue_seconds" {
  description = "Nodes are added at once when a due fire has waited longer than this."
  type        = number
  default     = 10

  validation {
    condition     = var.autoscaling_overdue_seconds >= 1
    error_message = "autoscaling_overdue_seconds is ${var.autoscaling_overdue_seconds}. It must be at least 1."
  }
}

variable "autoscaling_upcoming_fires" {
  description = "Add nodes ahead of a herd: \"add\" nodes once more than \"fires\" are due in the next 15 minutes. Null: never."
  type = object({
    fires = number
    add   = number
  })
  default = null

  validation {
    condition     = var.autoscaling_upcoming_fires == null || try(var.autoscaling_upcoming_fires.fires >= 1 && var.autoscaling_upcoming_fires.add >= 1, false)
    error_message = "autoscaling_upcoming_fires needs fires and add, both at least 1."
  }
}

variable "autoscaling_scheduled_actions" {
  description = "Other bounds at times that you know, by a name of your choice. A schedule is one of Application Auto Scaling, such as cron(0 7 * * ? *)."
  type = map(object({
    schedule     = string
    timezone     = optional(string, "Etc/UTC")
    min_capacity = number
    max_capacity = number
  }))
  default = {}

  validation {
    condition     = alltrue([for action in values(var.autoscaling_scheduled_actions) : action.min_capacity >= (var.development ? 1 : 2) && action.max_capacity >= action.min_capacity])
    error_message = "An action in autoscaling_scheduled_actions has less than 2 nodes, or a maximum below its minimum."
  }
}

# Logs and alarms

variable "log_retention_in_days" {
  description = "How long the log is kept."
  type        = number
  default     = 30

  validation {
    condition     = contains([1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653], var.log_retention_in_days)
    error_message = "log_retention_in_days is ${var.log_retention_in_days}. CloudWatch knows 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365 and more days, not every number."
  }
}

variable "create_kms_key" {
  description = "Whether the module creates the KMS key of the log; false to use log_kms_key_arn."
  type        = bool
  default     = true
}

variable "log_kms_key_arn" {
  description = "An existing KMS key of the log, which CloudWatch Logs may use, for create_kms_key = false."
  type        = string
  default     = null

  validation {
    condition     = var.create_kms_key == (var.log_kms_key_arn == null)
    error_message = "log_kms_key_arn goes with create_kms_key = false, and only with it."
  }
}

variable "alarm_actions" {
  description = "What the alarms notify, such as ARNs of SNS topics."
  type        = list(string)
  default     = []
}

variable "alarm_overdue_seconds" {
  description = "The alarm overdue rings when the oldest due fire waits longer than this."
  type        = number
  default     = 30
}

# Access to API and console

variable "load_balancer" {
  description = "An internal load balancer with TLS for API and console. domain_name is a name in the certificate, whose record you point at the output load_balancer. Null: none."
  type = object({
    certificate_arn            = string
    domain_name                = string
    subnet_ids                 = optional(list(string))
    allowed_cidrs              = optional(list(string), [])
    allowed_security_group_ids = optional(list(string), [])
    allowed_prefix_list_ids    = optional(list(string), [])
    ssl_policy                 = optional(string, "ELBSecurityPolicy-TLS13-1-2-Res-2021-06")
    deregistration_delay       = optional(number, 60)
    access_logs_bucket         = optional(string)
    deletion_protection        = optional(bool, true)
  })
  default = null

  validation {
    condition     = var.load_balancer == null || try(length(var.load_balancer.allowed_cidrs) + length(var.load_balancer.allowed_security_group_ids) + length(var.load_balancer.allowed_prefix_list_ids) > 0, false)
    error_message = "Nobody could reach the load balancer: set allowed_cidrs, allowed_security_group_ids or allowed_prefix_list_ids."
  }

  validation {
    condition     = var.load_balancer == null || try(alltrue([for cidr in var.load_balancer.allowed_cidrs : can(regex("^(10\\.|172\\.(1[6-9]|2[0-9]|3[01])\\.|192\\.168\\.|100\\.(6[4-9]|[7-9][0-9]|1[01][0-9]|12[0-7])\\.|f[cd])", cidr)) && can(cidrhost(cidr, 0))]), false)
    error_message = "allowed_cidrs must hold private networks such as 10.0.0.0/16: the load balancer is internal."
  }

  validation {
    condition     = var.load_balancer == null || can(regex("^ELBSecurityPolicy-TLS13-1-[23]-", var.load_balancer.ssl_policy))
    error_message = "ssl_policy must be one of ELBSecurityPolicy-TLS13-1-2-... or -1-3-...: older ones allow versions of TLS that are broken."
  }

  validation {
    condition     = var.load_balancer == null || try(var.load_balancer.deregistration_delay <= var.drain_timeout, false)
    error_message = "deregistration_delay is longer than drain_timeout (${var.drain_timeout} s): a node would be gone while the load balancer still sends to it."
  }
}

variable "service_discovery" {
  description = "A private DNS namespace of Cloud Map in which the nodes are found under the name of the fleet. Null: none."
  type = object({
    namespace_id   = string
    namespace_name = string
  })
  default = null
}
