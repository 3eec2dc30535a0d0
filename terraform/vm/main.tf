# A fleet of nodes on EC2: an autoscaling group of Debian machines with Carillon's package.

data "aws_region" "this" {}
data "aws_partition" "this" {}
data "aws_caller_identity" "this" {}

# Debian publishes its images under these names.
data "aws_ssm_parameter" "debian" {
  count = var.ami_id == null ? 1 : 0
  name  = "/aws/service/debian/release/12/latest/${var.architecture}"
}

module "subnets" {
  source     = "../modules/subnets"
  subnet_ids = var.subnet_ids
}

locals {
  region   = data.aws_region.this.region
  account  = data.aws_caller_identity.this.account_id
  arn      = "arn:${data.aws_partition.this.partition}"
  reached  = length(var.api_security_group_ids) + length(var.api_cidrs) > 0
  port     = 8080
  observed = var.log_agent != null
  scales   = local.observed && var.max_size > var.min_size

  # Names, not references: the machines of the group complete its hooks, and so their user data and their role
  # exist before the group.
  launch_hook    = "${var.name}-launch"
  terminate_hook = "${var.name}-terminate"
  log_group      = "/carillon/${var.name}"
  group_arn      = "${local.arn}:autoscaling:${local.region}:${local.account}:autoScalingGroup:*:autoScalingGroupName/${var.name}"

  # Debian's packages and Carillon's come before the node starts.
  launch_timeout    = var.ready_timeout + 600
  terminate_timeout = max(var.stop_timeout + 60, 90)
}

module "config" {
  source = "../modules/config"

  name                         = var.name
  database_url                 = var.database_url
  database_auth                = var.database_auth
  database_password_secret_arn = var.database_password_secret_arn
  migrate                      = var.migrate
  listen                       = "${local.reached ? "0.0.0.0" : "127.0.0.1"}:${local.port}"
  stop_timeout                 = var.stop_timeout
  drain_timeout                = var.drain_timeout
  emf                          = local.observed
  log_level                    = var.log_level
  workers                      = var.workers
  apps                         = var.apps
  labels                       = var.labels
  callback_url                 = var.callback_url
  egress_private               = var.egress_private
  egress_deny                  = var.egress_deny
  secret_keys_secret_arn       = var.secret_keys_secret_arn
  secrets                      = var.secrets
  secret_role_arn              = var.secret_role_arn
  vault                        = var.vault
  environment                  = var.environment
}

module "cloud_init" {
  source = "./cloud-init"

  region      = local.region
  environment = module.config.environment
  secrets     = module.config.secrets
  package     = { url = var.package_url, sha256 = var.package_sha256 }
  log_agent = local.observed ? {
    url            = var.log_agent.package_url
    sha256         = var.log_agent.package_sha256
    log_group_name = aws_cloudwatch_log_group.this[0].name
  } : null
  additional_packages     = var.additional_packages
  install_debian_packages = var.install_debian_packages
  stop_timeout            = var.stop_timeout
  ready_timeout           = var.ready_timeout
  group = {
    name           = var.name
    launch_hook    = local.launch_hook
    terminate_hook = local.terminate_hook
  }
}

resource "aws_launch_template" "this" {
  name_prefix            = "${var.name}-"
  image_id               = var.ami_id == null ? data.aws_ssm_parameter.debian[0].insecure_value : var.ami_id
  instance_type          = var.instance_types[0]
  key_name               = var.key_name
  user_data              = module.cloud_init.user_data_base64
  update_default_version = true
  tags                   = var.tags

  iam_instance_profile {
    arn = aws_iam_instance_profile.this.arn
  }

  # Hop limit 1: containers and proxies on the machine do not get its role.
  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
    instance_metadata_tags      = "enabled"
  }

  # The root device of Debian's images.
  block_device_mappings {
    device_name = "/dev/xvda"

    ebs {
      volume_type           = "gp3"
      volume_size           = var.volume_size
      encrypted             = true
      kms_key_id            = var.volume_kms_key_arn
      delete_on_termination = true
    }
  }

  network_interfaces {
    associate_public_ip_address = var.associate_public_ip_address
    security_groups             = concat([module.network.security_group_id], var.security_group_ids)
    delete_on_termination       = true
  }

  monitoring {
    enabled = var.detailed_monitoring
  }

  dynamic "tag_specifications" {
    for_each = toset(["instance", "volume", "network-interface"])

    content {
      resource_type = tag_specifications.value
      tags          = merge(var.tags, { Name = var.name })
    }
  }
}

resource "aws_autoscaling_group" "this" {
  name                      = var.name
  min_size                  = var.min_size
  max_size                  = var.max_size
  vpc_zone_identifier       = var.subnet_ids
  health_check_type         = "EC2"
  health_check_grace_period = 60
  default_instance_warmup   = 120
  capacity_rebalance        = var.spot != null
  target_group_arns         = var.target_group_arns
  wait_for_capacity_timeout = "${ceil(local.launch_timeout / 60) + 5}m"

  mixed_instances_policy {
    launch_template {
      launch_template_specification {
        launch_template_id = aws_launch_template.this.id
        # A number, not $Latest: a new one starts an instance refresh, and a rollback knows where to go.
        version = aws_launch_template.this.latest_version
      }

      dynamic "override" {
        for_each = var.instance_types

        content {
          instance_type = override.value
        }
      }
    }

    instances_distribution {
      on_demand_base_capacity                  = var.spot == null ? 0 : var.spot.on_demand_base
      on_demand_percentage_above_base_capacity = var.spot == null ? 100 : var.spot.on_demand_percentage
      on_demand_allocation_strategy            = "prioritized"
      spot_allocation_strategy                 = "price-capacity-optimized"
    }
  }

  # New before old, whatever the reason of a replacement is.
  instance_maintenance_policy {
    min_healthy_percentage = 100
    max_healthy_percentage = 200
  }

  instance_refresh {
    strategy = "Rolling"

    preferences {
      min_healthy_percentage = 100
      max_healthy_percentage = 200
      auto_rollback          = true
      skip_matching          = true

      dynamic "alarm_specification" {
        for_each = local.observed && var.deployment_alarms_rollback ? [1] : []

        content {
          alarms = [for key in ["overdue", "database-unreachable"] : module.alarms[0].names[key]]
        }
      }
    }
  }

  # The first instances are launched before aws_autoscaling_lifecycle_hook can exist. AWS reads this only when the
  # group is created; the resource below keeps the hook up to date.
  initial_lifecycle_hook {
    name                 = local.launch_hook
    lifecycle_transition = "autoscaling:EC2_INSTANCE_LAUNCHING"
    heartbeat_timeout    = local.launch_timeout
    default_result       = "ABANDON"
  }

  dynamic "tag" {
    for_each = var.tags

    content {
      key                 = tag.key
      value               = tag.value
      propagate_at_launch = false # the launch template has them
    }
  }

  # Without their rights, instances could neither read secrets nor complete their launch.
  depends_on = [aws_iam_role_policy.node, aws_iam_role_policy.packages, aws_iam_role_policy_attachment.additional]

  lifecycle {
    ignore_changes = [initial_lifecycle_hook]

    precondition {
      condition     = var.development || length(module.subnets.zones) >= 2
      error_message = "The subnets are all in the zone ${join(", ", module.subnets.zones)}: nothing would fire while it is down. Name subnets of two zones, or set development = true."
    }

    precondition {
      condition     = alltrue([for id in module.subnets.vpc_ids : id == var.vpc_id])
      error_message = "A subnet in subnet_ids is not in the VPC ${var.vpc_id}."
    }
  }
}

# An instance enters the group when its node is ready, and is given up otherwise.
resource "aws_autoscaling_lifecycle_hook" "launch" {
  name                   = local.launch_hook
  autoscaling_group_name = aws_autoscaling_group.this.name
  lifecycle_transition   = "autoscaling:EC2_INSTANCE_LAUNCHING"
  heartbeat_timeout      = local.launch_timeout
  default_result         = "ABANDON"
}

# An instance leaves when its node has drained: "carillon lifecycle ec2" stops the unit and completes the hook.
resource "aws_autoscaling_lifecycle_hook" "terminate" {
  name                   = local.terminate_hook
  autoscaling_group_name = aws_autoscaling_group.this.name
  lifecycle_transition   = "autoscaling:EC2_INSTANCE_TERMINATING"
  heartbeat_timeout      = local.terminate_timeout
  default_result         = "CONTINUE"
}
