# One machine with a SQLite database on a volume of its own.
#
# It is a plain instance, not an autoscaling group of one: only one node can use the file, the volume cannot leave
# its zone, and a group would start a second machine that has to wait for the volume of the first. EC2 itself moves
# an instance to other hardware, with its volume, if the hardware fails.

data "aws_region" "this" {}
data "aws_partition" "this" {}
data "aws_caller_identity" "this" {}

data "aws_subnet" "this" {
  id = var.subnet_id
}

data "aws_ssm_parameter" "debian" {
  name = "/aws/service/debian/release/12/latest/arm64"
}

module "config" {
  source = "git::https://github.com/carillon-dev/carillon.git//terraform/modules/config?ref=v0.1.0"

  name          = var.name
  database_url  = "sqlite:/var/lib/carillon/carillon.db"
  database_auth = "password" # which a file does not have
  listen        = "127.0.0.1:8080"
}

module "cloud_init" {
  source = "git::https://github.com/carillon-dev/carillon.git//terraform/vm/cloud-init?ref=v0.1.0"

  region              = data.aws_region.this.region
  environment         = module.config.environment
  package             = var.package
  log_agent           = merge(var.log_agent, { log_group_name = aws_cloudwatch_log_group.this.name })
  additional_packages = [var.session_agent]
  data_volume_id      = aws_ebs_volume.data.id
}

module "iam" {
  source = "git::https://github.com/carillon-dev/carillon.git//terraform/modules/iam?ref=v0.1.0"

  assumed_by    = "ec2.amazonaws.com"
  log_group_arn = aws_cloudwatch_log_group.this.arn
}

module "alarms" {
  source = "git::https://github.com/carillon-dev/carillon.git//terraform/modules/alarms?ref=v0.1.0"

  name          = var.name
  alarm_actions = [aws_sns_topic.alarms.arn]
}

# The instance can be replaced at any time; jobs and history are here.
resource "aws_ebs_volume" "data" {
  availability_zone = data.aws_subnet.this.availability_zone
  type              = "gp3"
  size              = var.data_volume_size
  encrypted         = true
  tags              = { Name = "${var.name}-data", Snapshots = var.name }

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_volume_attachment" "data" {
  device_name = "/dev/sdf"
  volume_id   = aws_ebs_volume.data.id
  instance_id = aws_instance.this.id

  # The node drains and closes the file before the volume goes.
  stop_instance_before_detaching = true
}

resource "aws_instance" "this" {
  ami                         = data.aws_ssm_parameter.debian.insecure_value
  instance_type               = var.instance_type
  subnet_id                   = var.subnet_id
  vpc_security_group_ids      = [aws_security_group.this.id]
  associate_public_ip_address = var.associate_public_ip_address
  iam_instance_profile        = aws_iam_instance_profile.this.name
  user_data_base64            = module.cloud_init.user_data_base64
  user_data_replace_on_change = true
  tags                        = { Name = var.name }

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
    instance_metadata_tags      = "enabled"
  }

  root_block_device {
    volume_type = "gp3"
    volume_size = 8
    encrypted   = true
  }

  # A newer image of Debian replaces the machine when you say so: terraform apply -replace=aws_instance.this
  lifecycle {
    ignore_changes = [ami]
  }

  depends_on = [aws_iam_role_policy.node, aws_iam_role_policy_attachment.sessions]
}

resource "aws_security_group" "this" {
  name_prefix = "${var.name}-"
  description = "Carillon, ${var.name}: nobody is let in"
  vpc_id      = data.aws_subnet.this.vpc_id
}

resource "aws_vpc_security_group_egress_rule" "all" {
  security_group_id = aws_security_group.this.id
  description       = "Targets of jobs, AWS and packages of Debian"
  ip_protocol       = "-1"
  cidr_ipv4         = "0.0.0.0/0"
}

resource "aws_iam_role" "this" {
  name_prefix        = "${var.name}-"
  assume_role_policy = module.iam.assume_role_policy
}

resource "aws_iam_role_policy" "node" {
  name   = "node"
  role   = aws_iam_role.this.id
  policy = module.iam.node_policy
}

resource "aws_iam_role_policy_attachment" "sessions" {
  role       = aws_iam_role.this.name
  policy_arn = "arn:${data.aws_partition.this.partition}:iam::aws:policy/AmazonSSMManagedInstanceCore"
}

resource "aws_iam_instance_profile" "this" {
  name_prefix = "${var.name}-"
  role        = aws_iam_role.this.name
}
