# terraform/vm and examples/vm-single-sqlite look at the content, and the Go tests run it.
variables {
  region      = "eu-central-1"
  environment = { CARILLON_DATABASE = "sqlite:/var/lib/carillon/carillon.db", CARILLON_NODE_NAME = "a \"b\" $c \\ `d`" }
  package     = { url = "https://packages.example.com/carillon_1.0.0_arm64.deb", sha256 = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b" }
}

run "one_machine" {
  assert {
    condition     = startswith(output.cloud_config, "#cloud-config\n")
    error_message = "cloud-init would not recognise it."
  }
  assert {
    condition     = strcontains(local.env_file, "CARILLON_NODE_NAME=\"a \\\"b\\\" \\$c \\\\ \\`d\\`\"\n")
    error_message = "A value with other than plain characters is not quoted: ${local.env_file}"
  }
  assert {
    condition     = !strcontains(output.cloud_config, "append:") && !strcontains(output.cloud_config, "Mounts the data volume")
    error_message = "Without log agent and data volume the machine gets what belongs to them."
  }
}

run "data_volume" {
  variables {
    data_volume_id = "vol-0123456789abcdef0"
  }
  assert {
    condition     = strcontains(output.cloud_config, "RequiresMountsFor=/var/lib/private/carillon")
    error_message = "The node starts without its volume."
  }
}

run "node_of_a_group" {
  variables {
    group               = { name = "payroll", launch_hook = "payroll-launch", terminate_hook = "payroll-terminate" }
    log_agent           = { url = "https://packages.example.com/amazon-cloudwatch-agent.deb", sha256 = "d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35", log_group_name = "/carillon/payroll" }
    additional_packages = [{ url = "s3://packages/amazon-ssm-agent.deb", sha256 = "4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce" }]
    environment         = { CARILLON_DATABASE = "sqlite:/var/lib/carillon/carillon.db", CARILLON_VAULT_ADDRESS = "https://vault.internal" }
    secrets = {
      CARILLON_SECRET_KEYS = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:keys-AbCdEf"
      CARILLON_VAULT_TOKEN = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:vault-AbCdEf:token::"
      SECRET_CRM           = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:crm-AbCdEf:token::"
      SECRET_PEM           = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:pem-AbCdEf"
    }
  }
  assert {
    condition     = strcontains(local.env_file, "CARILLON_DATABASE=sqlite:") && strcontains(local.lifecycle_env, "CARILLON_LIFECYCLE_HOOK=payroll-terminate")
    error_message = "The settings lack the database or the hook."
  }
}
