# Each run trips one validation.

variables {
  name         = "payroll"
  database_url = "postgres://carillon@db.internal/carillon"
}

run "a_name_for_resources" {
  command = plan
  variables {
    name = "Payroll_1"
  }
  expect_failures = [var.name]
}

run "a_database_that_it_knows" {
  command = plan
  variables {
    database_url = "mysql://carillon@db/carillon"
  }
  expect_failures = [var.database_url]
}

run "no_password_in_the_url" {
  command = plan
  variables {
    database_url = "postgres://carillon:secret@db.internal/carillon"
  }
  expect_failures = [var.database_url]
}

run "no_password_parameter_in_the_url" {
  command = plan
  variables {
    database_url = "postgres://carillon@db.internal/carillon?sslmode=require&password=secret"
  }
  expect_failures = [var.database_url]
}

run "a_user_in_the_url" {
  command = plan
  variables {
    database_url = "postgres://db.internal/carillon"
  }
  expect_failures = [var.database_url]
}

run "no_token_for_any_server" {
  command = plan
  variables {
    database_url = "postgres://carillon@db.internal/carillon?sslmode=require"
  }
  expect_failures = [var.database_auth]
}

run "a_way_to_log_in" {
  command = plan
  variables {
    database_auth = "iam"
  }
  expect_failures = [var.database_auth]
}

run "no_token_for_a_file" {
  command = plan
  variables {
    database_url = "sqlite:/var/lib/carillon/carillon.db"
  }
  expect_failures = [var.database_auth]
}

run "a_complete_arn_of_the_password" {
  command = plan
  variables {
    database_auth                = "password"
    database_password_secret_arn = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:db"
  }
  expect_failures = [var.database_password_secret_arn]
}

run "one_way_to_log_in" {
  command = plan
  variables {
    database_password_secret_arn = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:db-AbCdEf"
  }
  expect_failures = [var.database_password_secret_arn]
}

run "a_port_to_listen_on" {
  command = plan
  variables {
    listen = "0.0.0.0"
  }
  expect_failures = [var.listen]
}

run "time_to_stop" {
  command = plan
  variables {
    stop_timeout  = 9
    drain_timeout = 1
  }
  expect_failures = [var.stop_timeout]
}

run "time_to_drain" {
  command = plan
  variables {
    drain_timeout = 0
  }
  expect_failures = [var.drain_timeout]
}

run "a_drain_before_the_stop" {
  command = plan
  variables {
    drain_timeout = 116
  }
  expect_failures = [var.drain_timeout]
}

run "a_level_of_the_log" {
  command = plan
  variables {
    log_level = "verbose"
  }
  expect_failures = [var.log_level]
}

run "a_number_of_workers" {
  command = plan
  variables {
    workers = 10001
  }
  expect_failures = [var.workers]
}

run "names_of_apps" {
  command = plan
  variables {
    apps = ["billing, crm"]
  }
  expect_failures = [var.apps]
}

run "labels_without_commas" {
  command = plan
  variables {
    labels = { zone = "a,b" }
  }
  expect_failures = [var.labels]
}

run "callback_url" {
  command = plan
  variables {
    callback_url = "https://user@carillon.example.com"
  }
  expect_failures = [var.callback_url]
}

run "private_networks" {
  command = plan
  variables {
    egress_private = ["10.0.0.0"]
  }
  expect_failures = [var.egress_private]
}

run "denied_networks" {
  command = plan
  variables {
    egress_deny = ["10.0.0.0"]
  }
  expect_failures = [var.egress_deny]
}

run "a_complete_arn_of_the_keys" {
  command = plan
  variables {
    secret_keys_secret_arn = "carillon/keys"
  }
  expect_failures = [var.secret_keys_secret_arn]
}

run "names_of_secrets" {
  command = plan
  variables {
    secrets = { CRM = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:crm-AbCdEf" }
  }
  expect_failures = [var.secrets]
}

run "complete_arns_of_secrets" {
  command = plan
  variables {
    secrets = { SECRET_CRM = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:*" }
  }
  expect_failures = [var.secrets]
}

run "variables_of_carillon" {
  command = plan
  variables {
    environment = { AWS_REGION = "eu-central-1" }
  }
  expect_failures = [var.environment]
}

run "no_password_in_the_environment" {
  command = plan
  variables {
    environment = { CARILLON_DATABASE_PASSWORD = "secret" }
  }
  expect_failures = [var.environment]
}

run "one_input_for_a_variable" {
  command = plan
  variables {
    environment = { CARILLON_WORKERS = "100" }
  }
  expect_failures = [var.environment]
}

run "a_role_by_arn" {
  command = plan
  variables {
    secret_role_arn = "carillon-{app}"
  }
  expect_failures = [var.secret_role_arn]
}

run "an_encrypted_way_to_vault" {
  command = plan
  variables {
    vault = { address = "http://vault.internal:8200", role = "carillon" }
  }
  expect_failures = [var.vault]
}

run "a_login_that_nodes_have" {
  command = plan
  variables {
    vault = { address = "https://vault.internal:8200", auth = "kubernetes", role = "carillon" }
  }
  expect_failures = [var.vault]
}

run "a_role_of_vault" {
  command = plan
  variables {
    vault = { address = "https://vault.internal:8200" }
  }
  expect_failures = [var.vault]
}

run "a_token_of_vault" {
  command = plan
  variables {
    vault = { address = "https://vault.internal:8200", auth = "token" }
  }
  expect_failures = [var.vault]
}

run "a_complete_arn_of_the_token" {
  command = plan
  variables {
    vault = { address = "https://vault.internal:8200", auth = "token", token_secret_arn = "vault-token" }
  }
  expect_failures = [var.vault]
}

run "a_mount_without_slashes_around" {
  command = plan
  variables {
    vault = { address = "https://vault.internal:8200", role = "carillon", mount = "/aws/" }
  }
  expect_failures = [var.vault]
}

run "authorities_not_their_file" {
  command = plan
  variables {
    vault = { address = "https://vault.internal:8200", role = "carillon", ca = "vault-ca.pem" }
  }
  expect_failures = [var.vault]
}
