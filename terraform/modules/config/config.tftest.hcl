variables {
  name         = "payroll"
  database_url = "postgres://carillon@db.internal:6432/carillon?sslmode=verify-full"
}

run "environment_and_secrets" {
  variables {
    task_protection        = true
    workers                = 100
    labels                 = { zone = "a", disk = "ssd" }
    callback_url           = "https://carillon.example.com"
    egress_private         = ["10.0.0.0/16"]
    environment            = { CARILLON_HOST_RATE = "50" }
    secret_keys_secret_arn = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:carillon/keys-AbCdEf"
    secrets                = { SECRET_CRM = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:crm-AbCdEf:token::" }
  }
  assert {
    condition = output.environment == tomap({
      CARILLON_DATABASE        = "postgres://carillon@db.internal:6432/carillon?sslmode=verify-full"
      CARILLON_DATABASE_AUTH   = "rds-iam"
      CARILLON_LISTEN          = "0.0.0.0:8080"
      CARILLON_STOP_TIMEOUT    = "120s"
      CARILLON_DRAIN_TIMEOUT   = "110s"
      CARILLON_TASK_PROTECTION = "true"
      CARILLON_EMF             = "payroll"
      CARILLON_LOG_FORMAT      = "json"
      CARILLON_LOG_LEVEL       = "info"
      CARILLON_WORKERS         = "100"
      CARILLON_NODE_LABELS     = "disk=ssd,zone=a"
      CARILLON_CALLBACK_URL    = "https://carillon.example.com"
      CARILLON_EGRESS_PRIVATE  = "10.0.0.0/16"
      CARILLON_HOST_RATE       = "50"
    })
    error_message = "The environment is ${jsonencode(output.environment)}."
  }
  assert {
    condition = output.secrets == tomap({
      CARILLON_SECRET_KEYS = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:carillon/keys-AbCdEf"
      SECRET_CRM           = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:crm-AbCdEf:token::"
    })
    error_message = "The secrets are ${jsonencode(output.secrets)}."
  }
  assert {
    condition     = contains(output.secret_arns, "arn:aws:secretsmanager:eu-central-1:123456789012:secret:crm-AbCdEf")
    error_message = "The key of a JSON secret is taken as a part of its ARN."
  }
  assert {
    condition     = output.database_user == "carillon" && output.database_host == "db.internal" && output.database_port == 6432 && output.port == 8080
    error_message = "The URL is read as ${output.database_user}@${output.database_host}:${output.database_port}."
  }
}

run "a_password_from_a_secret" {
  variables {
    database_url                 = "postgres://carillon@db.internal/carillon"
    database_auth                = "password"
    database_password_secret_arn = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:rds!db-1234-AbCdEf:password::"
  }
  assert {
    condition     = !contains(keys(output.environment), "CARILLON_DATABASE_AUTH") && endswith(output.secrets.CARILLON_DATABASE_PASSWORD, ":password::") && output.database_port == 5432
    error_message = "The node gets ${jsonencode(output.secrets)}."
  }
}

run "sqlite_on_a_machine" {
  variables {
    database_url  = "sqlite:/var/lib/carillon/carillon.db"
    database_auth = "password"
    emf           = false
  }
  assert {
    condition     = output.database_user == null && output.database_host == null && output.database_port == null && !contains(keys(output.environment), "CARILLON_EMF")
    error_message = "A file has a host."
  }
}

run "several_servers" {
  variables {
    database_url = "postgres://carillon@db1.internal:6432,db2.internal:6433/carillon"
  }
  assert {
    condition     = output.database_host == "db1.internal" && output.database_port == 6432
    error_message = "The first server is ${output.database_host}:${output.database_port}."
  }
}

run "secrets_from_where_they_are_kept" {
  variables {
    secret_role_arn = "arn:aws:iam::123456789012:role/apps/carillon-{app}"
    vault = {
      address   = "https://vault.internal:8200"
      role      = "carillon-{app}"
      mount     = "aws/prod"
      namespace = "payroll"
      server_id = "vault.internal"
      ca        = "-----BEGIN CERTIFICATE-----\n"
    }
  }
  assert {
    condition = { for name, value in output.environment : name => value if can(regex("VAULT|SECRET", name)) } == {
      CARILLON_SECRET_AWS_ROLE = "arn:aws:iam::123456789012:role/apps/carillon-{app}"
      CARILLON_VAULT_ADDRESS   = "https://vault.internal:8200"
      CARILLON_VAULT_AUTH      = "aws"
      CARILLON_VAULT_CA        = "base64:LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg=="
      CARILLON_VAULT_MOUNT     = "aws/prod"
      CARILLON_VAULT_NAMESPACE = "payroll"
      CARILLON_VAULT_ROLE      = "carillon-{app}"
      CARILLON_VAULT_SERVER_ID = "vault.internal"
    }
    error_message = "The environment is ${jsonencode(output.environment)}."
  }
  assert {
    condition     = output.vault_port == 8200
    error_message = "Vault listens on port ${output.vault_port}."
  }
}

run "a_token_of_vault_from_a_secret" {
  variables {
    vault = {
      address          = "https://vault.example.com/"
      auth             = "token"
      token_secret_arn = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:vault-AbCdEf:token::"
    }
  }
  assert {
    condition     = output.secrets == tomap({ CARILLON_VAULT_TOKEN = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:vault-AbCdEf:token::" }) && output.vault_port == 443
    error_message = "The node gets ${jsonencode(output.secrets)} and calls port ${output.vault_port}."
  }
}
