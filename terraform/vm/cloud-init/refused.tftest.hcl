# Each run trips one rule.
variables {
  region      = "eu-central-1"
  environment = { CARILLON_DATABASE = "sqlite:/var/lib/carillon/carillon.db" }
  package     = { url = "https://packages.example.com/carillon_1.0.0_arm64.deb", sha256 = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b" }
}

run "a_line_a_variable" {
  command = plan
  variables {
    environment = { CARILLON_NODE_NAME = "one\ntwo" }
  }
  expect_failures = [var.environment]
}

run "a_package_by_https" {
  command = plan
  variables {
    package = { url = "http://packages.example.com/carillon.deb", sha256 = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b" }
  }
  expect_failures = [var.package]
}

run "a_checksum" {
  command = plan
  variables {
    package = { url = "https://packages.example.com/carillon.deb", sha256 = "latest" }
  }
  expect_failures = [var.package]
}

run "a_log_agent_by_https" {
  command = plan
  variables {
    log_agent = { url = "ftp://packages.example.com/agent.deb", sha256 = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b", log_group_name = "/carillon" }
  }
  expect_failures = [var.log_agent]
}

run "a_log_agent_with_a_checksum" {
  command = plan
  variables {
    log_agent = { url = "https://packages.example.com/agent.deb", sha256 = "latest", log_group_name = "/carillon" }
  }
  expect_failures = [var.log_agent]
}

run "packages_with_checksums" {
  command = plan
  variables {
    additional_packages = [{ url = "https://packages.example.com/agent.deb", sha256 = "" }]
  }
  expect_failures = [var.additional_packages]
}

run "time_to_get_ready" {
  command = plan
  variables {
    ready_timeout = 7200
  }
  expect_failures = [var.ready_timeout]
}

run "a_volume" {
  command = plan
  variables {
    data_volume_id = "/dev/sdb"
  }
  expect_failures = [var.data_volume_id]
}

run "no_more_than_ec2_takes" {
  command = plan
  variables {
    secrets = { for i in range(1000) : "SECRET_${upper(sha256(i))}" => "arn:aws:secretsmanager:eu-central-1:123456789012:secret:${sha256("s${i}")}-AbCdEf" }
  }
  expect_failures = [output.user_data_base64]
}
