package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// newAppDataSource returns carillon_app: an app with its bounds.
func newAppDataSource() datasource.DataSource {
	return &dataSource[appDataModel]{name: "app", schema: appDataSchema, read: readApp}
}

// appDataModel is an app as it is now.
type appDataModel struct {
	appModel
	Pauses []appPauseModel `tfsdk:"pauses"`
}

// appPauseModel is a pause of an app.
type appPauseModel struct {
	ID       types.String      `tfsdk:"id"`
	Labels   map[string]string `tfsdk:"labels"`
	Reason   types.String      `tfsdk:"reason"`
	PausedBy types.String      `tfsdk:"paused_by"`
	PausedAt timetypes.RFC3339 `tfsdk:"paused_at"`
	Until    timetypes.RFC3339 `tfsdk:"until"`
}

func appDataSchema() schema.Schema {
	of := boundsType()
	return schema.Schema{
		MarkdownDescription: "An app, with the bounds that operators have set and the external id for trust policies in AWS.",
		Attributes: map[string]schema.Attribute{
			"name":        schema.StringAttribute{Required: true, MarkdownDescription: "Name of the app."},
			"description": computedString("Free text."),
			"enabled":     schema.BoolAttribute{Computed: true, MarkdownDescription: "Whether the jobs of the app fire."},
			"retention": schema.StringAttribute{
				Computed: true, CustomType: semanticType[durations]{}, MarkdownDescription: "How long the history of the app is kept: a duration.",
			},
			"bounds": schema.ObjectAttribute{
				Computed: true, AttributeTypes: of.AttrTypes,
				MarkdownDescription: "What operators allow the app, with the defaults; see the resource `carillon_app`.",
			},
			"default_timezone": computedString("IANA time zone of triggers that name none and follow the wall clock."),
			"default_headers": schema.MapAttribute{
				Computed: true, ElementType: types.StringType,
				MarkdownDescription: "Headers that all webhooks and requests to endpoint groups of the app send.",
			},
			"default_misfire_policy":     computedString("The `misfire_policy` of triggers that have none."),
			"default_concurrency_policy": computedString("The `concurrency_policy` of jobs that have none."),
			"default_retry": schema.ObjectAttribute{
				Computed: true, AttributeTypes: retryType().AttrTypes,
				MarkdownDescription: "The `retry` of jobs that have none; see the resource `carillon_job`.",
			},
			"aws_external_id": computedString("External id with which nodes assume AWS roles for the app."),
			"revision":        computedInt("Number of the current version of the app."),
			"pauses": schema.ListNestedAttribute{
				Computed: true, MarkdownDescription: "The pauses that hold jobs of the app now, oldest first. Those of single jobs are not among them.",
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"id": computedString("Names the pause for `carillon pause remove`."),
					"labels": schema.MapAttribute{
						Computed: true, ElementType: types.StringType,
						MarkdownDescription: "Labels of the jobs that it holds; null if it holds every job of the app.",
					},
					"reason":    computedString("Why; null if nobody said."),
					"paused_by": computedString("The token that paused, or another actor of the audit log."),
					"paused_at": computedTime("Since when."),
					"until":     computedTime("When it ends by itself; null if somebody has to end it."),
				}},
			},
		},
	}
}

func readApp(ctx context.Context, c *connection, diags *diag.Diagnostics, config appDataModel) appDataModel {
	name := config.Name.ValueString()
	var problems input.Problems
	if input.CheckName(&problems, "/name", name); len(problems) > 0 {
		reportProblems(diags, problems)
		return config
	}
	app, err := c.App(ctx, name)
	if err != nil {
		c.report(diags, fmt.Sprintf("read app %q", name), err)
		return config
	}
	model := appDataModel{
		appModel: flattenApp(ctx, diags, app, appModel{Bounds: nullObject(boundsType())}), Pauses: flattenPauses(app.Pauses),
	}
	if app.Bounds != nil {
		model.Bounds = flattenObject(ctx, diags, boundsType(), boundsModelOf(ctx, diags, *app.Bounds))
	}
	return model
}

func flattenPauses(pauses []dispatcher.AppPause) []appPauseModel {
	models := []appPauseModel{}
	for _, p := range pauses {
		models = append(models, appPauseModel{
			ID: types.StringValue(p.ID), Labels: p.Labels, Reason: flattenOptional(p.Reason), PausedBy: types.StringValue(p.PausedBy),
			PausedAt: timetypes.NewRFC3339TimeValue(p.PausedAt), Until: timetypes.NewRFC3339TimePointerValue(p.Until),
		})
	}
	return models
}
