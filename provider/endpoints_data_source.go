package provider

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// newEndpointsDataSource returns carillon_endpoints: the endpoints that a group has now.
func newEndpointsDataSource() datasource.DataSource {
	return &dataSource{name: "endpoints", schema: endpointsDataSchema, read: readEndpoints}
}

func endpointsDataSchema() schema.Schema {
	attributes := endpointsRows.dataAttributes()
	attributes["app"] = schema.StringAttribute{Required: true, MarkdownDescription: "Name of the app."}
	attributes["group"] = schema.StringAttribute{Required: true, MarkdownDescription: "Name of the endpoint group."}
	return schema.Schema{
		MarkdownDescription: "The endpoints that an endpoint group has now: those that the group declares, those that registered " +
			"themselves, and those from DNS. They come and go, so each plan may read others.",
		Attributes: attributes,
	}
}

var endpointsRows = rowsOf(fresh[client.List[target.Endpoint]],
	blocksRow("endpoints", func(l *client.List[target.Endpoint]) *[]target.Endpoint { return &l.Items }, liveEndpointRows, inData,
		"The endpoints by id.", alwaysThere),
)

var liveEndpointRows = rowsOf(fresh[target.Endpoint],
	textRow("id", func(e *target.Endpoint) *string { return &e.ID }, inData, "Id of the endpoint, unique within the group."),
	textRow("url", func(e *target.Endpoint) *string { return &e.URL }, inData, "Where the paths of group and job go on."),
	wholeRow("weight", func(e *target.Endpoint) *int { return new(max(e.Weight, 1)) }, inData, "Its share with the strategies that know one."),
	boolRow("backup", func(e *target.Endpoint) *bool { return &e.Backup }, inData, "Whether it is chosen only while no other one is up."),
	mapRow("labels", func(e *target.Endpoint) *input.Labels { return &e.Labels }, inData, "Its labels; null if it has none."),
	textRow("source", func(e *target.Endpoint) *target.EndpointSource { return &e.Source }, inData, "How it came: `static` (the group declares "+
		"it), `registered` (it registered itself) or `dns` (a name stands for it)."),
	boolRow("draining", func(e *target.Endpoint) *bool { return &e.Draining }, inData, "Whether an operator drains it: it gets no new requests."),
	instantRow("registered_at", func(e *target.Endpoint) **time.Time { return new(&e.RegisteredAt) }, inData, "When it registered or was "+
		"declared first, since it was there without a break."),
	instantRow("expires_at", func(e *target.Endpoint) **time.Time { return &e.ExpiresAt }, inData, "When it goes unless it registers again; "+
		"null unless it is registered."),
	textRow("server_name", func(e *target.Endpoint) *string { return &e.ServerName }, inData, "Name and port that an address from DNS gets as "+
		"`Host` unless the group has a `server_name`; null for others.", emptyIsNull),
)

func readEndpoints(ctx context.Context, c *connection, diags *diag.Diagnostics, m values) values {
	app, group := m.text("app"), m.text("group")
	var problems input.Problems
	input.CheckName(&problems, "/app", app.ValueString())
	input.CheckName(&problems, "/group", group.ValueString())
	if reportProblems(diags, problems); len(problems) > 0 {
		return m
	}
	var all client.List[target.Endpoint]
	for page := (input.Page{}); ; {
		list, err := c.Endpoints(ctx, app.ValueString(), group.ValueString(), page)
		if err != nil {
			c.report(diags, fmt.Sprintf("list the endpoints of group %q", importID(app, group)), err)
			return m
		}
		all.Items = append(all.Items, list.Items...)
		if page.Cursor = list.Next; page.Cursor == "" {
			break
		}
	}
	// Others are no endpoints of the group, and only operators see them.
	all.Items = slices.DeleteFunc(all.Items, func(e target.Endpoint) bool { return e.Refused != "" })
	maps.Copy(m, endpointsRows.shown(diags, &all))
	return m
}
