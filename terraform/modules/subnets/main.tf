# Where subnets are. It is a module of its own because tests can override the outputs of a module with
# terraform and with OpenTofu, but single instances of a data source only with terraform.

variable "subnet_ids" {
  description = "The subnets."
  type        = list(string)
}

data "aws_subnet" "this" {
  count = length(var.subnet_ids)
  id    = var.subnet_ids[count.index]
}

output "zones" {
  description = "The availability zones of the subnets, each once."
  value       = distinct(data.aws_subnet.this[*].availability_zone)
}

output "vpc_ids" {
  description = "The VPCs of the subnets, each once."
  value       = distinct(data.aws_subnet.this[*].vpc_id)
}
