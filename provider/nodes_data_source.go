package provider

import (
	"context"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// newNodesDataSource returns carillon_nodes: all nodes of the fleet.
func newNodesDataSource() datasource.DataSource {
	return &dataSource{name: "nodes", read: readNodes, schema: func() schema.Schema {
		return schema.Schema{
			MarkdownDescription: "The dispatcher nodes, including dead ones until Carillon purges them. Needs a token " +
				"that is bound to no app.",
			Attributes: nodesRows.dataAttributes(),
		}
	}}
}

var nodesRows = rowsOf(fresh[client.List[dispatcher.Node]],
	blocksRow("nodes", func(l *client.List[dispatcher.Node]) *[]dispatcher.Node { return &l.Items }, nodeRows, inData, "The nodes.", alwaysThere),
)

var nodeRows = rowsOf(fresh[dispatcher.Node],
	shownRow("id", func(n *dispatcher.Node) string { return n.ID.String() }, inData, "Id of the node: 16 hexadecimal digits, random and new at "+
		"each start."),
	textRow("name", func(n *dispatcher.Node) *string { return &n.Name }, inData, "Name of the node, by default that of its host. It is a label, "+
		"so two nodes may share it."),
	textRow("version", func(n *dispatcher.Node) *string { return &n.Version }, inData, "Version of Carillon that the node runs."),
	textRow("state", func(n *dispatcher.Node) *dispatcher.NodeState { return &n.State }, inData, "`active`, `paused`, `draining` or `dead`."),
	instantRow("started_at", func(n *dispatcher.Node) **time.Time { return new(&n.StartedAt) }, inData, "When the node started, by the "+
		"database's clock."),
	instantRow("heartbeat_at", func(n *dispatcher.Node) **time.Time { return new(&n.HeartbeatAt) }, inData, "When the latest heartbeat arrived, "+
		"by the database's clock."),
	wholeRow("in_flight", func(n *dispatcher.Node) *int { return &n.InFlight }, inData, "How many runs the node was working on at its latest "+
		"heartbeat."),
	wholeRow("fires", func(n *dispatcher.Node) *int { return &n.Fires }, inData, "How many fires the node claimed in the minute before its "+
		"latest heartbeat."),
	mapRow("labels", func(n *dispatcher.Node) *input.Labels { return &n.Labels }, inData, "The labels that jobs may require with "+
		"`node_labels`.", thereInData),
	valueRow("share", types.Float64Type, func(n *dispatcher.Node) attr.Value { return types.Float64Value(n.Share) }, inData, "Share of the fleet's "+
		"fires that the node claimed in that minute, from 0 to 1."),
	durationRow("lag", func(n *dispatcher.Node) *input.Duration { return &n.Lag }, inData, "The longest delay with which an attempt began "+
		"between its last two heartbeats: a duration."),
	shownRow("clock_offset", func(n *dispatcher.Node) string { return n.ClockOffset.String() }, inData, "How far the node's clock is ahead of "+
		"the database's: a duration, negative if behind. It does not affect when jobs fire."),
)

func readNodes(ctx context.Context, c *connection, diags *diag.Diagnostics, m values) values {
	list, err := c.Nodes(ctx)
	if err != nil {
		c.report(diags, "list the nodes", err)
		return m
	}
	return nodesRows.shown(diags, &list)
}
