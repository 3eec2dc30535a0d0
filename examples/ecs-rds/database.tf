# The database outlives the nodes. Nodes log in to it with tokens that their role may sign; no password of
# theirs exists. The README says how their user is created.

resource "aws_db_subnet_group" "this" {
  name_prefix = "${var.name}-"
  subnet_ids  = var.subnet_ids
}

resource "aws_security_group" "database" {
  name_prefix = "${var.name}-database-"
  description = "Database of the Carillon fleet ${var.name}"
  vpc_id      = var.vpc_id

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_vpc_security_group_ingress_rule" "nodes" {
  security_group_id            = aws_security_group.database.id
  description                  = "Nodes"
  referenced_security_group_id = module.carillon.security_group_id
  ip_protocol                  = "tcp"
  from_port                    = 5432
  to_port                      = 5432
}

resource "aws_vpc_security_group_ingress_rule" "shell" {
  count = length(var.shell_security_group_ids)

  security_group_id            = aws_security_group.database.id
  description                  = "Operators"
  referenced_security_group_id = var.shell_security_group_ids[count.index]
  ip_protocol                  = "tcp"
  from_port                    = 5432
  to_port                      = 5432
}

resource "aws_db_instance" "this" {
  identifier_prefix = "${var.name}-"
  engine            = "postgres"
  engine_version    = "17"
  instance_class    = var.database_instance_class
  multi_az          = var.database_multi_az

  username                            = "postgres"
  manage_master_user_password         = true # in Secrets Manager, and rotated there
  iam_database_authentication_enabled = true

  allocated_storage     = 20
  max_allocated_storage = 200
  storage_type          = "gp3"
  storage_encrypted     = true

  db_subnet_group_name   = aws_db_subnet_group.this.name
  vpc_security_group_ids = [aws_security_group.database.id]
  publicly_accessible    = false

  backup_retention_period    = 14
  copy_tags_to_snapshot      = true
  auto_minor_version_upgrade = true
  deletion_protection        = true
  final_snapshot_identifier  = "${var.name}-final"

  # So that "-target=aws_db_instance.this" lets you in, to create the user of the nodes.
  depends_on = [aws_vpc_security_group_ingress_rule.shell]
}
