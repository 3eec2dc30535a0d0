package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

var _ datasource.DataSourceWithConfigure = (*calendarDataSource)(nil)

// calendarDataSource is carillon_calendar: a calendar that somebody else declares.
type calendarDataSource struct{ conn *connection }

func newCalendarDataSource() datasource.DataSource { return &calendarDataSource{} }

func (d *calendarDataSource) Metadata(_ context.Context, req datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_calendar"
}

func (d *calendarDataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "A calendar, so that a trigger can name one that another configuration declares. A plan fails if it does not exist.",
		Attributes: map[string]schema.Attribute{
			"app":         schema.StringAttribute{Required: true, MarkdownDescription: "Name of the app."},
			"name":        schema.StringAttribute{Required: true, MarkdownDescription: "Name of the calendar."},
			"id":          computedString("The import id, `app/calendar`."),
			"description": computedString("Free text."),
			"timezone":    computedString("Time zone of the days and times in the rules."),
			"rule": schema.ListAttribute{
				Computed: true, ElementType: ruleType(), MarkdownDescription: "What it excludes; see the resource `carillon_calendar`.",
			},
			"bases": schema.ListAttribute{
				Computed: true, ElementType: types.StringType, MarkdownDescription: "Names of calendars whose exclusions apply too.",
			},
			"revision": computedInt("Number of the current version of the calendar."),
		},
	}
}

func (d *calendarDataSource) Configure(_ context.Context, req datasource.ConfigureRequest, _ *datasource.ConfigureResponse) {
	d.conn = configured(req.ProviderData)
}

func (d *calendarDataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m calendarModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() || !d.conn.ready(&resp.Diagnostics) || !validNames(&resp.Diagnostics, m.App, m.Name) {
		return
	}
	calendar, err := d.conn.Calendar(ctx, m.App.ValueString(), m.Name.ValueString())
	if err != nil {
		d.conn.report(&resp.Diagnostics, fmt.Sprintf("read calendar %q", importID(m.App, m.Name)), err)
		return
	}
	setState(ctx, &resp.State, &resp.Diagnostics, flattenCalendar(ctx, &resp.Diagnostics, calendar))
}
