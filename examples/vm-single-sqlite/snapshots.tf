# A snapshot every hour for two days, and one a day for a month. It holds the database as after a power cut, which
# SQLite recovers from.
resource "aws_dlm_lifecycle_policy" "snapshots" {
  description        = "Snapshots of ${var.name}"
  execution_role_arn = aws_iam_role.snapshots.arn
  state              = "ENABLED"

  policy_details {
    resource_types = ["VOLUME"]
    target_tags    = { Snapshots = var.name }

    schedule {
      name      = "hourly"
      copy_tags = true

      create_rule {
        interval      = 1
        interval_unit = "HOURS"
      }
      retain_rule {
        count = 48
      }
    }

    schedule {
      name      = "daily"
      copy_tags = true

      create_rule {
        interval      = 24
        interval_unit = "HOURS"
        times         = ["03:15"]
      }
      retain_rule {
        count = 30
      }
    }
  }
}

resource "aws_iam_role" "snapshots" {
  name_prefix = "${var.name}-snapshots-"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "dlm.amazonaws.com" }
    }]
  })
}

resource "aws_iam_role_policy_attachment" "snapshots" {
  role       = aws_iam_role.snapshots.name
  policy_arn = "arn:${data.aws_partition.this.partition}:iam::aws:policy/service-role/AWSDataLifecycleManagerServiceRole"
}
