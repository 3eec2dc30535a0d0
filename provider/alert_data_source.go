package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

var _ datasource.DataSourceWithConfigure = (*alertDataSource)(nil)

// alertDataSource is carillon_alert: an alert that somebody else declares, and what it knows now.
type alertDataSource struct{ conn *connection }

func newAlertDataSource() datasource.DataSource { return &alertDataSource{} }

type alertDataModel struct {
	App         types.String  `tfsdk:"app"`
	Name        types.String  `tfsdk:"name"`
	ID          types.String  `tfsdk:"id"`
	Description types.String  `tfsdk:"description"`
	Jobs        types.List    `tfsdk:"jobs"`
	Labels      types.Map     `tfsdk:"labels"`
	Firing      types.Int64   `tfsdk:"firing"`
	Muted       types.Bool    `tfsdk:"muted"`
	MutedBy     types.String  `tfsdk:"muted_by"`
	MuteReason  types.String  `tfsdk:"mute_reason"`
	MutedUntil  instantString `tfsdk:"muted_until"`
	Revision    types.Int64   `tfsdk:"revision"`
}

func (d *alertDataSource) Metadata(_ context.Context, req datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_alert"
}

func (d *alertDataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "An alert: which jobs it selects, how many conditions hold now, and whether an operator has muted it. A plan " +
			"fails if it does not exist.",
		Attributes: map[string]schema.Attribute{
			"app":         schema.StringAttribute{Required: true, MarkdownDescription: "Name of the app."},
			"name":        schema.StringAttribute{Required: true, MarkdownDescription: "Name of the alert."},
			"id":          computedString("The import id, `app/alert`."),
			"description": computedString("Free text."),
			"jobs": schema.ListAttribute{
				Computed: true, ElementType: types.StringType,
				MarkdownDescription: "Names of the jobs that it selects. One that has neither jobs nor labels is a default of its app.",
			},
			"labels": schema.MapAttribute{
				Computed: true, ElementType: types.StringType, MarkdownDescription: "Labels of the jobs that it selects in addition.",
			},
			"firing":      computedInt("Number of conditions of jobs that hold now."),
			"muted":       schema.BoolAttribute{Computed: true, MarkdownDescription: "Whether an operator has muted it."},
			"muted_by":    computedString("Who muted it; null if nobody did."),
			"mute_reason": computedString("Why; null if nobody said so."),
			"muted_until": schema.StringAttribute{
				Computed: true, CustomType: semanticType[instants]{},
				MarkdownDescription: "When the mute ends; null if it has no end, or if there is none.",
			},
			"revision": computedInt("Number of the current version of the alert."),
		},
	}
}

func (d *alertDataSource) Configure(_ context.Context, req datasource.ConfigureRequest, _ *datasource.ConfigureResponse) {
	d.conn = configured(req.ProviderData)
}

func (d *alertDataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m alertDataModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() || !d.conn.ready(&resp.Diagnostics) || !validNames(&resp.Diagnostics, m.App, m.Name) {
		return
	}
	a, err := d.conn.Alert(ctx, m.App.ValueString(), m.Name.ValueString())
	if err != nil {
		d.conn.report(&resp.Diagnostics, fmt.Sprintf("read alert %q", importID(m.App, m.Name)), err)
		return
	}
	m.ID, m.Description = types.StringValue(a.App+"/"+a.Name), types.StringValue(a.Description)
	m.Jobs = flattenList(ctx, &resp.Diagnostics, types.StringType, a.Jobs)
	m.Labels = flattenMap(ctx, &resp.Diagnostics, types.StringType, a.Labels)
	m.Firing, m.Revision = types.Int64Value(int64(a.Firing)), types.Int64Value(a.Revision)
	m.Muted, m.MutedUntil = types.BoolValue(a.Muted != nil), flattenInstant(nil)
	if a.Muted != nil {
		m.MutedBy, m.MuteReason = flattenOptional(a.Muted.By), flattenOptional(a.Muted.Reason)
		m.MutedUntil = flattenInstant(a.Muted.Until)
	}
	setState(ctx, &resp.State, &resp.Diagnostics, m)
}
