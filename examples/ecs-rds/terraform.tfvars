# Put your values here.
region                   = "eu-central-1"
image                    = "ghcr.io/carillon-dev/carillon@sha256:0000000000000000000000000000000000000000000000000000000000000000"
vpc_id                   = "vpc-0123456789abcdef0"
subnet_ids               = ["subnet-0a1b2c3d4e5f60718", "subnet-18076f5e4d3c2b1a0"]
shell_security_group_ids = ["sg-0123456789abcdef0"]
alarm_email              = "on-call@example.com"
