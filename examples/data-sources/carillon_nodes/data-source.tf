data "carillon_nodes" "all" {}

# A plan that shows a warning unless at least two nodes are at work.
check "fleet" {
  assert {
    condition     = length([for node in data.carillon_nodes.all.nodes : node if node.state == "active"]) >= 2
    error_message = "Fewer than two Carillon nodes are active."
  }
}
