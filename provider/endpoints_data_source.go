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
	"github.com/carillon-dev/carillon/provider/binding"
)

// newEndpointsDataSource returns carillon_endpoints: the endpoints that a group has now.
func newEndpointsDataSource() datasource.DataSource {
	return &dataSource{name: "endpoints", schema: endpointsDataSchema, read: readEndpoints}
}

func endpointsDataSchema() schema.Schema {
	attributes := endpointsRows.DataAttributes()
	attributes["app"] = schema.StringAttribute{Required: true, MarkdownDescription: "Name of the app."}
	attributes["group"] = schema.StringAttribute{Required: true, MarkdownDescription: "Name of the endpoint group."}
	return schema.Schema{
		MarkdownDescription: "The endpoints that an endpoint group has now: those that the group declares, those that registered " +
			"themselves, and those from DNS. They come and go, so each plan may read others.",
		Attributes: attributes,
	}
}

var endpointsRows = binding.Of(binding.Fresh[client.List[target.Endpoint]],
	binding.Blocks("endpoints", binding.Nested(func(l *client.List[target.Endpoint]) *[]target.Endpoint { return &l.Items },
		liveEndpointRows), binding.InData, "The endpoints by id.", binding.AlwaysThere),
)

var liveEndpointRows = binding.Of(binding.Fresh[target.Endpoint],
	binding.Text("id", func(e *target.Endpoint) *string { return &e.ID }, binding.InData, "Id of the endpoint, unique within the group."),
	binding.Text("url", func(e *target.Endpoint) *string { return &e.URL }, binding.InData, "Where the paths of group and job go on."),
	binding.Whole("weight", func(e *target.Endpoint) *int { return new(max(e.Weight, 1)) }, binding.InData,
		"Its share with the strategies that know one."),
	binding.Bool("backup", func(e *target.Endpoint) *bool { return &e.Backup }, binding.InData, "Whether it is chosen only while no "+
		"other one is up."),
	binding.Map("labels", func(e *target.Endpoint) *input.Labels { return &e.Labels }, binding.InData, "Its labels; null if it has none."),
	binding.Text("source", func(e *target.Endpoint) *target.EndpointSource { return &e.Source }, binding.InData,
		"How it came: `static` (the group declares it), `registered` (it registered itself) or `dns` (a name stands for it)."),
	binding.Bool("draining", func(e *target.Endpoint) *bool { return &e.Draining }, binding.InData, "Whether an operator drains it: "+
		"it gets no new requests."),
	binding.Instant("registered_at", func(e *target.Endpoint) **time.Time { return new(&e.RegisteredAt) }, binding.InData,
		"When it registered or was declared first, since it was there without a break."),
	binding.Instant("expires_at", func(e *target.Endpoint) **time.Time { return &e.ExpiresAt }, binding.InData,
		"When it goes unless it registers again; null unless it is registered."),
	binding.Text("server_name", func(e *target.Endpoint) *string { return &e.ServerName }, binding.InData, "Name and port that an "+
		"address from DNS gets as `Host` unless the group has a `server_name`; null for others.", binding.EmptyIsNull),
)

func readEndpoints(ctx context.Context, c *connection, diags *diag.Diagnostics, m binding.Values) binding.Values {
	app, group := m.Text("app"), m.Text("group")
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
	maps.Copy(m, endpointsRows.Shown(diags, &all))
	return m
}
