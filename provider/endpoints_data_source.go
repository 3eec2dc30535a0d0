package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// newEndpointsDataSource returns carillon_endpoints: the endpoints that a group has now.
func newEndpointsDataSource() datasource.DataSource {
	return &dataSource[endpointsModel]{name: "endpoints", schema: endpointsDataSchema, read: readEndpoints}
}

type endpointsModel struct {
	App       types.String        `tfsdk:"app"`
	Group     types.String        `tfsdk:"group"`
	Endpoints []endpointDataModel `tfsdk:"endpoints"`
}

type endpointDataModel struct {
	ID           types.String      `tfsdk:"id"`
	URL          types.String      `tfsdk:"url"`
	Weight       types.Int64       `tfsdk:"weight"`
	Backup       types.Bool        `tfsdk:"backup"`
	Labels       map[string]string `tfsdk:"labels"`
	Source       types.String      `tfsdk:"source"`
	Draining     types.Bool        `tfsdk:"draining"`
	RegisteredAt timetypes.RFC3339 `tfsdk:"registered_at"`
	ExpiresAt    timetypes.RFC3339 `tfsdk:"expires_at"`
	ServerName   types.String      `tfsdk:"server_name"`
}

func endpointsDataSchema() schema.Schema {
	return schema.Schema{
		MarkdownDescription: "The endpoints that an endpoint group has now: those that the group declares, those that registered " +
			"themselves, and those from DNS. They come and go, so each plan may read others.",
		Attributes: map[string]schema.Attribute{
			"app":   schema.StringAttribute{Required: true, MarkdownDescription: "Name of the app."},
			"group": schema.StringAttribute{Required: true, MarkdownDescription: "Name of the endpoint group."},
			"endpoints": schema.ListNestedAttribute{
				Computed: true, MarkdownDescription: "The endpoints by id.",
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"id":     computedString("Id of the endpoint, unique within the group."),
					"url":    computedString("Where the paths of group and job go on."),
					"weight": computedInt("Its share with the strategies that know one."),
					"backup": computedBool("Whether it is chosen only while no other one is up."),
					"labels": schema.MapAttribute{
						Computed: true, ElementType: types.StringType, MarkdownDescription: "Its labels; null if it has none.",
					},
					"source": computedString("How it came: `static` (the group declares it), `registered` (it registered itself) or `dns` (a name " +
						"stands for it)."),
					"draining":      computedBool("Whether an operator drains it: it gets no new requests."),
					"registered_at": computedTime("When it registered or was declared first, since it was there without a break."),
					"expires_at":    computedTime("When it goes unless it registers again; null unless it is registered."),
					"server_name": computedString("Name and port that an address from DNS gets as `Host` unless the group has a `server_name`; null for " +
						"others."),
				}},
			},
		},
	}
}

func readEndpoints(ctx context.Context, c *connection, diags *diag.Diagnostics, m endpointsModel) endpointsModel {
	var problems input.Problems
	input.CheckName(&problems, "/app", m.App.ValueString())
	input.CheckName(&problems, "/group", m.Group.ValueString())
	if reportProblems(diags, problems); len(problems) > 0 {
		return m
	}
	m.Endpoints = []endpointDataModel{}
	for page := (input.Page{}); ; {
		list, err := c.Endpoints(ctx, m.App.ValueString(), m.Group.ValueString(), page)
		if err != nil {
			c.report(diags, fmt.Sprintf("list the endpoints of group %q", importID(m.App, m.Group)), err)
			return m
		}
		for _, endpoint := range list.Items {
			if endpoint.Refused == "" { // others are no endpoints of the group, and only operators see them
				m.Endpoints = append(m.Endpoints, flattenEndpoint(endpoint))
			}
		}
		if page.Cursor = list.Next; page.Cursor == "" {
			break
		}
	}
	return m
}

func flattenEndpoint(e target.Endpoint) endpointDataModel {
	return endpointDataModel{
		ID: types.StringValue(e.ID), URL: types.StringValue(e.URL), Weight: types.Int64Value(int64(max(e.Weight, 1))),
		Backup: types.BoolValue(e.Backup), Labels: e.Labels, Source: types.StringValue(string(e.Source)),
		Draining: types.BoolValue(e.Draining), RegisteredAt: timetypes.NewRFC3339TimeValue(e.RegisteredAt.UTC()),
		ExpiresAt: timetypes.NewRFC3339TimePointerValue(e.ExpiresAt), ServerName: flattenOptional(e.ServerName),
	}
}
