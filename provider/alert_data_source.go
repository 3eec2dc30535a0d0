package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// newAlertDataSource returns carillon_alert: an alert that somebody else declares, and what it knows now.
func newAlertDataSource() datasource.DataSource {
	return &dataSource[alertDataModel]{name: "alert", schema: alertDataSchema, read: readAlert}
}

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

func alertDataSchema() schema.Schema {
	return schema.Schema{
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

func readAlert(ctx context.Context, c *connection, diags *diag.Diagnostics, m alertDataModel) alertDataModel {
	if !validNames(diags, m.App, m.Name) {
		return m
	}
	a, err := c.Alert(ctx, m.App.ValueString(), m.Name.ValueString())
	if err != nil {
		c.report(diags, fmt.Sprintf("read alert %q", importID(m.App, m.Name)), err)
		return m
	}
	m.ID, m.Description = types.StringValue(a.App+"/"+a.Name), types.StringValue(a.Description)
	m.Jobs = flattenList(ctx, diags, types.StringType, a.Jobs)
	m.Labels = flattenMap(ctx, diags, types.StringType, a.Labels)
	m.Firing, m.Revision = types.Int64Value(int64(a.Firing)), types.Int64Value(a.Revision)
	m.Muted, m.MutedUntil = types.BoolValue(a.Muted != nil), flattenInstant(nil)
	if a.Muted != nil {
		m.MutedBy, m.MuteReason = flattenOptional(a.Muted.By), flattenOptional(a.Muted.Reason)
		m.MutedUntil = flattenInstant(a.Muted.Until)
	}
	return m
}
