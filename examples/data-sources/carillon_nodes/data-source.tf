data "carillon_nodes" "all" {}

# The plan shows a warning unless at least two nodes are active.
check "fleet" {
  assert {
    condition     = length([for node in data.carillon_nodes.all.nodes : node if node.state == "active"]) >= 2
    error_message = "Fewer than two Carillon nodes are active."
  }
}
