package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
)

// newNodesDataSource returns carillon_nodes: all nodes of the fleet.
func newNodesDataSource() datasource.DataSource {
	return &dataSource[nodesModel]{name: "nodes", schema: nodesDataSchema, read: readNodes}
}

type nodesModel struct {
	Nodes []nodeModel `tfsdk:"nodes"`
}

type nodeModel struct {
	ID          types.String      `tfsdk:"id"`
	Name        types.String      `tfsdk:"name"`
	Version     types.String      `tfsdk:"version"`
	State       types.String      `tfsdk:"state"`
	StartedAt   timetypes.RFC3339 `tfsdk:"started_at"`
	HeartbeatAt timetypes.RFC3339 `tfsdk:"heartbeat_at"`
	InFlight    types.Int64       `tfsdk:"in_flight"`
	Labels      types.Map         `tfsdk:"labels"`
	Fires       types.Int64       `tfsdk:"fires"`
	Share       types.Float64     `tfsdk:"share"`
	Lag         types.String      `tfsdk:"lag"`
	ClockOffset types.String      `tfsdk:"clock_offset"`
}

func nodesDataSchema() schema.Schema {
	return schema.Schema{
		MarkdownDescription: "The dispatcher nodes, including dead ones until Carillon purges them. Needs a token " +
			"that is bound to no app.",
		Attributes: map[string]schema.Attribute{
			"nodes": schema.ListNestedAttribute{
				Computed:            true,
				MarkdownDescription: "The nodes.",
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"id":           computedString("Id of the node: 16 hexadecimal digits, random and new at each start."),
					"name":         computedString("Name of the node, by default that of its host. It is a label, so two nodes may share it."),
					"version":      computedString("Version of Carillon that the node runs."),
					"state":        computedString("`active`, `paused`, `draining` or `dead`."),
					"started_at":   computedTime("When the node started, by the database's clock."),
					"heartbeat_at": computedTime("When the latest heartbeat arrived, by the database's clock."),
					"in_flight":    computedInt("How many runs the node was working on at its latest heartbeat."),
					"fires":        computedInt("How many fires the node claimed in the minute before its latest heartbeat."),
					"labels": schema.MapAttribute{
						Computed: true, ElementType: types.StringType,
						MarkdownDescription: "The labels that jobs may require with `node_labels`.",
					},
					"share": schema.Float64Attribute{
						Computed:            true,
						MarkdownDescription: "Share of the fleet's fires that the node claimed in that minute, from 0 to 1.",
					},
					"lag": computedString("The longest delay with which an attempt began between its last two heartbeats: a duration."),
					"clock_offset": computedString("How far the node's clock is ahead of the database's: a duration, negative if behind. " +
						"It does not affect when jobs fire."),
				}},
			},
		},
	}
}

func readNodes(ctx context.Context, c *connection, diags *diag.Diagnostics, _ nodesModel) nodesModel {
	list, err := c.Nodes(ctx)
	if err != nil {
		c.report(diags, "list the nodes", err)
		return nodesModel{}
	}
	m := nodesModel{Nodes: []nodeModel{}}
	for _, node := range list.Items {
		m.Nodes = append(m.Nodes, flattenNode(ctx, diags, node))
	}
	return m
}

func flattenNode(ctx context.Context, diags *diag.Diagnostics, node dispatcher.Node) nodeModel {
	return nodeModel{
		ID:          types.StringValue(node.ID.String()),
		Name:        types.StringValue(node.Name),
		Version:     types.StringValue(node.Version),
		State:       types.StringValue(string(node.State)),
		StartedAt:   timetypes.NewRFC3339TimeValue(node.StartedAt),
		HeartbeatAt: timetypes.NewRFC3339TimeValue(node.HeartbeatAt),
		InFlight:    types.Int64Value(int64(node.InFlight)),
		Labels:      flattenMap(ctx, diags, types.StringType, map[string]string(node.Labels)),
		Fires:       types.Int64Value(int64(node.Fires)),
		Share:       types.Float64Value(node.Share),
		Lag:         types.StringValue(formatDuration(node.Lag)),
		ClockOffset: types.StringValue(node.ClockOffset.String()),
	}
}

func computedString(description string) schema.Attribute {
	return schema.StringAttribute{Computed: true, MarkdownDescription: description}
}

func computedInt(description string) schema.Attribute {
	return schema.Int64Attribute{Computed: true, MarkdownDescription: description}
}

func computedTime(description string) schema.Attribute {
	return schema.StringAttribute{Computed: true, CustomType: timetypes.RFC3339Type{}, MarkdownDescription: description}
}
