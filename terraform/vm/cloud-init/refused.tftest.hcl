# Each run trips one rule of each object that it expects to fail.
variables {
  region      = "eu-central-1"
  environment = { CARILLON_DATABASE = "sqlite:/var/lib/carillon/carillon.db" }
  package     = { url = "https://packages.example.com/carillon_1.0.0_arm64.deb", sha256 = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b" }
}

run "values_out_of_form" {
  command = plan
  variables {
    environment         = { CARILLON_NODE_NAME = "one\ntwo" }
    package             = { url = "http://packages.example.com/carillon.deb", sha256 = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b" }
    log_agent           = { url = "ftp://packages.example.com/agent.deb", sha256 = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b", log_group_name = "/carillon" }
    additional_packages = [{ url = "https://packages.example.com/agent.deb", sha256 = "" }]
    ready_timeout       = 7200
    data_volume_id      = "/dev/sdb"
  }
  expect_failures = [var.environment, var.package, var.log_agent, var.additional_packages, var.ready_timeout, var.data_volume_id]
}

run "checksums_out_of_form" {
  command = plan
  variables {
    package   = { url = "https://packages.example.com/carillon.deb", sha256 = "latest" }
    log_agent = { url = "https://packages.example.com/agent.deb", sha256 = "latest", log_group_name = "/carillon" }
  }
  expect_failures = [var.package, var.log_agent]
}

run "no_more_than_ec2_takes" {
  command = plan
  variables {
    secrets = { for i in range(1000) : "SECRET_${upper(sha256(i))}" => "arn:aws:secretsmanager:eu-central-1:123456789012:secret:${sha256("s${i}")}-AbCdEf" }
  }
  expect_failures = [output.user_data_base64]
}
