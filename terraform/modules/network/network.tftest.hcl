mock_provider "aws" {}

variables {
  name                        = "payroll"
  vpc_id                      = "vpc-1"
  open_ports                  = { 443 = "Targets", 80 = "Packages" }
  database_port               = 6432
  database_security_group_ids = ["sg-database"]
  database_cidrs              = ["10.1.0.0/16", "fd00::/8"]
  egress_rules = {
    webhooks = { from_port = 8443, cidr_ipv4 = "10.2.0.0/16" }
    range    = { from_port = 9000, to_port = 9010, ip_protocol = "udp", prefix_list_id = "pl-1", description = "Statsd" }
  }
  tags = { team = "platform" }
}

run "nodes_call_out" {
  assert {
    condition = { for name, rule in aws_vpc_security_group_egress_rule.everywhere : name => "${rule.from_port}-${rule.to_port} ${coalesce(rule.cidr_ipv4, rule.cidr_ipv6)}" } == {
      "443-ipv4" = "443-443 0.0.0.0/0", "443-ipv6" = "443-443 ::/0", "80-ipv4" = "80-80 0.0.0.0/0", "80-ipv6" = "80-80 ::/0"
    }
    error_message = "Nodes do not call ports 443 and 80 anywhere, or more than these."
  }
  assert {
    condition     = aws_vpc_security_group_egress_rule.database_group[0].referenced_security_group_id == "sg-database" && aws_vpc_security_group_egress_rule.database_group[0].from_port == 6432
    error_message = "Nodes do not reach the database by its group."
  }
  assert {
    condition = [for rule in aws_vpc_security_group_egress_rule.database_network : "${coalesce(rule.cidr_ipv4, "-")} ${coalesce(rule.cidr_ipv6, "-")} ${rule.to_port}"] == [
      "10.1.0.0/16 - 6432", "- fd00::/8 6432",
    ]
    error_message = "Nodes do not reach the database by its networks."
  }
  assert {
    condition     = aws_vpc_security_group_egress_rule.other["webhooks"].to_port == 8443 && aws_vpc_security_group_egress_rule.other["webhooks"].description == "webhooks"
    error_message = "A rule without to_port and description is not one port with its name."
  }
  assert {
    condition     = aws_vpc_security_group_egress_rule.other["range"].to_port == 9010 && aws_vpc_security_group_egress_rule.other["range"].ip_protocol == "udp"
    error_message = "A rule of a range of ports is another one."
  }
}

run "vault_where_a_rule_leads" {
  variables {
    vault_port = 8443
  }
  assert {
    condition     = length(aws_vpc_security_group_egress_rule.other) == 2
    error_message = "Vault gets a rule besides that of the user."
  }
}

run "vault_where_nodes_call_anyway" {
  command = plan
  variables {
    vault_port   = 443
    egress_rules = {}
  }
}

run "vault_out_of_reach" {
  command = plan
  variables {
    vault_port = 9005 # only for UDP
  }
  expect_failures = [var.vault_port]
}
