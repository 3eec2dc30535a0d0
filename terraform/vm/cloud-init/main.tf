# Renders the cloud-config that makes a fresh Debian machine a node. It has no resources and needs no provider.
# The scripts are in files/: they are not templates, and read what differs from /etc/carillon/boot.env.

locals {
  here = "/usr/local/lib/carillon"

  # systemd and Carillon read this file. A value is quoted if it has anything but plain characters in it.
  env_file = join("", [for name, value in var.environment :
    can(regex("^[A-Za-z0-9_./:@,=+-]*$", value)) ? "${name}=${value}\n" :
  "${name}=\"${replace(value, "/([\\\\\"$`])/", "\\$1")}\"\n"])

  lifecycle_env = var.group == null ? "" : <<-EOT
    CARILLON_LIFECYCLE_GROUP=${var.group.name}
    CARILLON_LIFECYCLE_HOOK=${var.group.terminate_hook}
  EOT

  boot_env = <<-EOT
    AWS_DEFAULT_REGION=${var.region}
    GROUP=${var.group == null ? "" : var.group.name}
    LAUNCH_HOOK=${var.group == null ? "" : var.group.launch_hook}
    TERMINATE_HOOK=${var.group == null ? "" : var.group.terminate_hook}
    DATA_VOLUME=${var.data_volume_id == null ? "" : var.data_volume_id}
    LOG_AGENT=${var.log_agent == null ? "" : "yes"}
    READY_TIMEOUT=${var.ready_timeout}
  EOT

  # name|ARN|JSON key|version stage|version id
  secrets_list = join("", [for name, from in var.secrets :
    format("%s|%s|%s|%s|%s\n", name, join(":", slice(split(":", from), 0, 7)),
    try(split(":", from)[7], ""), try(split(":", from)[8], ""), try(split(":", from)[9], ""))
  ])

  first = concat(var.log_agent == null ? [] : [{ url = var.log_agent.url, sha256 = var.log_agent.sha256 }], var.additional_packages)

  # With SQLite the node does not start on the root volume while its own volume is missing.
  drop_in = join("", [for line in concat(
    ["# Written by Terraform at the first boot.", "[Unit]", "Wants=carillon-secrets.service", "After=carillon-secrets.service"],
    var.data_volume_id == null ? [] : ["RequiresMountsFor=/var/lib/private/carillon"],
    ["", "[Service]", "EnvironmentFile=-/etc/carillon/secrets.env", "TimeoutStopSec=${var.stop_timeout}"],
    var.log_agent == null ? [] : [for stream in ["Output", "Error"] : "Standard${stream}=append:/var/log/carillon/carillon.log"],
  ) : "${line}\n"])

  lifecycle_drop_in = <<-EOT
    # Written by Terraform at the first boot.
    [Service]
    StandardOutput=append:/var/log/carillon/lifecycle.log
    StandardError=append:/var/log/carillon/lifecycle.log
  EOT

  # Secrets that cannot be fetched do not keep a node from starting again with those of before: Wants, not
  # Requires. The first boot fails without them.
  secrets_unit = <<-EOT
    [Unit]
    Description=Secrets of Carillon from AWS Secrets Manager
    Wants=network-online.target
    After=network-online.target

    [Service]
    Type=oneshot
    ExecStart=${local.here}/fetch-secrets
    TimeoutStartSec=60
  EOT

  # systemd appends, so the file can be cut while it is open.
  logrotate = <<-EOT
    /var/log/carillon/*.log {
        daily
        maxsize 100M
        rotate 7
        compress
        copytruncate
        missingok
        notifempty
    }
  EOT

  agent_config = var.log_agent == null ? "" : jsonencode({
    agent = { region = var.region, run_as_user = "cwagent" }
    logs = {
      force_flush_interval = 5
      logs_collected = { files = { collect_list = [for file, stream in {
        "/var/log/carillon/carillon.log"  = "{instance_id}"
        "/var/log/carillon/lifecycle.log" = "{instance_id}/lifecycle"
        "/var/log/cloud-init-output.log"  = "{instance_id}/boot"
        } : {
        file_path       = file
        log_group_name  = var.log_agent.log_group_name
        log_stream_name = stream
      }] } }
    }
  })

  scripts = [for name in concat(["boot", "fetch-secrets"], var.data_volume_id == null ? [] : ["mount-data"]) : {
    path        = "${local.here}/${name}"
    permissions = "0755"
    content     = file("${path.module}/files/${name}")
  }]

  files = concat(local.scripts, [for f in [
    { path = "/etc/carillon/carillon.env", permissions = "0640", content = "${local.env_file}${local.lifecycle_env}" },
    { path = "/etc/carillon/boot.env", permissions = "0644", content = local.boot_env },
    { path = "${local.here}/packages.first", permissions = "0644", content = join("", [for p in local.first : "${p.sha256} ${p.url}\n"]) },
    { path = "${local.here}/package", permissions = "0644", content = "${var.package.sha256} ${var.package.url}\n" },
    { path = "${local.here}/secrets.list", permissions = "0644", content = local.secrets_list },
    { path = "/etc/systemd/system/carillon-secrets.service", permissions = "0644", content = local.secrets_unit },
    { path = "/etc/systemd/system/carillon.service.d/10-terraform.conf", permissions = "0644", content = local.drop_in },
    var.log_agent == null || var.group == null ? null : { path = "/etc/systemd/system/carillon-lifecycle.service.d/10-terraform.conf", permissions = "0644", content = local.lifecycle_drop_in },
    var.log_agent == null ? null : { path = "/etc/logrotate.d/carillon", permissions = "0644", content = local.logrotate },
    var.log_agent == null ? null : { path = "/etc/carillon/cloudwatch-agent.json", permissions = "0644", content = local.agent_config },
  ] : f if f != null])

  # JSON is YAML, and leaves no doubt about types and quotes.
  cloud_config = "#cloud-config\n${jsonencode(merge(
    { write_files = local.files, runcmd = [["${local.here}/boot"]] },
    { for key, value in {
      package_update = true
      packages       = ["awscli", "ca-certificates", "curl", "jq", "logrotate"]
    } : key => value if var.install_debian_packages },
  ))}"

  compressed = base64gzip(local.cloud_config)
  # Base64 makes 4 characters of 3 bytes.
  bytes = floor(length(local.compressed) * 3 / 4)
}
