mock_provider "aws" {
  mock_data "aws_subnet" {
    defaults = { vpc_id = "vpc-1", availability_zone = "eu-central-1a" }
  }
}

variables {
  subnet_ids = ["subnet-a", "subnet-b"]
}

run "each_once" {
  assert {
    condition     = output.zones == tolist(["eu-central-1a"]) && output.vpc_ids == tolist(["vpc-1"])
    error_message = "Two subnets in one zone have the zones ${join(", ", output.zones)}."
  }
}
