# Turns typed inputs into the environment of a node. It has no resources and needs no provider.

locals {
  postgres = can(regex("^postgres", var.database_url))
  database = local.postgres ? regex("^postgres(?:ql)?://(?P<user>[^/:@?]+)@(?P<host>[^/:@?,]+)(?::(?P<port>[0-9]+))?(?:,[^/@?]+)?/(?P<name>[^/?]+)", var.database_url) : null

  # Null leaves a variable out, so that the default of the node applies.
  all = {
    CARILLON_DATABASE        = var.database_url
    CARILLON_DATABASE_AUTH   = var.database_auth == "rds-iam" ? "rds-iam" : null
    CARILLON_MIGRATE         = var.migrate ? null : "false"
    CARILLON_LISTEN          = var.listen
    CARILLON_STOP_TIMEOUT    = "${var.stop_timeout}s"
    CARILLON_DRAIN_TIMEOUT   = "${var.drain_timeout}s"
    CARILLON_TASK_PROTECTION = var.task_protection ? "true" : null
    CARILLON_EMF             = var.emf ? var.name : null
    CARILLON_LOG_FORMAT      = "json"
    CARILLON_LOG_LEVEL       = var.log_level
    CARILLON_WORKERS         = var.workers == null ? null : tostring(var.workers)
    CARILLON_APPS            = length(var.apps) == 0 ? null : join(",", var.apps)
    CARILLON_NODE_LABELS     = length(var.labels) == 0 ? null : join(",", [for name, value in var.labels : "${name}=${value}"])
    CARILLON_CALLBACK_URL    = var.callback_url
    CARILLON_EGRESS_PRIVATE  = length(coalesce(var.egress_private, [])) == 0 ? null : join(",", var.egress_private)
    CARILLON_EGRESS_DENY     = length(var.egress_deny) == 0 ? null : join(",", var.egress_deny)
    CARILLON_SECRET_AWS_ROLE = var.secret_role_arn
    CARILLON_VAULT_ADDRESS   = try(var.vault.address, null)
    CARILLON_VAULT_AUTH      = try(var.vault.auth, null)
    CARILLON_VAULT_CA        = try("base64:${base64encode(var.vault.ca)}", null)
    CARILLON_VAULT_MOUNT     = try(var.vault.mount, null)
    CARILLON_VAULT_NAMESPACE = try(var.vault.namespace, null)
    CARILLON_VAULT_ROLE      = try(var.vault.role, null)
    CARILLON_VAULT_SERVER_ID = try(var.vault.server_id, null)
  }

  environment = merge({ for name, value in local.all : name => value if value != null }, var.environment)

  secrets = merge(
    { for name, arn in {
      CARILLON_DATABASE_PASSWORD = var.database_password_secret_arn
      CARILLON_SECRET_KEYS       = var.secret_keys_secret_arn
      CARILLON_VAULT_TOKEN       = try(var.vault.token_secret_arn, null)
    } : name => arn if arn != null },
    var.secrets,
  )
}
