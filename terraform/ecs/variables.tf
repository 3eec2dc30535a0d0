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
  description = "Secrets of targets by variable: jobs of app crm refer to SECRET_CRM_KEY as env:SECRET_CRM_KEY. Values are complete ARNs in Secrets Manager, with :KEY:: at the end for a key of a JSON secret."
  type        = map(string)
  default     = {}
}

variable "secret_keys_secret_arn" {
  description = "Secret in Secrets Manager with the keys of stored secrets, as \"carillon secret key\" prints them. Null if no job stores a secret in Carillon."
  type        = string
  default     = null
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
