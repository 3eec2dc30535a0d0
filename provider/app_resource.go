package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
)

var (
	_ resource.ResourceWithImportState    = (*appResource)(nil)
	_ resource.ResourceWithValidateConfig = (*appResource)(nil)
)

// appResource is carillon_app.
type appResource struct {
	definitionResource[appModel, dispatcher.App]
}

func newAppResource() resource.Resource {
	return &appResource{definitionResource[appModel, dispatcher.App]{
		kind:    "app",
		id:      func(m appModel) string { return m.Name.ValueString() },
		planned: func(m appModel) int64 { return m.Revision.ValueInt64() },
		current: func(app dispatcher.App) int64 { return app.Revision },
		get: func(ctx context.Context, c *client.Client, m appModel) (dispatcher.App, error) {
			return c.App(ctx, m.Name.ValueString())
		},
		put: (*client.Client).PutApp,
		remove: func(ctx context.Context, c *client.Client, m appModel, cond client.Condition) error {
			return c.DeleteApp(ctx, m.Name.ValueString(), cond)
		},
		expand: func(_ context.Context, plan, _ appModel, _ *appModel) (dispatcher.App, dispatcher.Problems) {
			return expandApp(&expander{}, plan), nil
		},
		flatten: flattenApp,
	}}
}

// appModel is a carillon_app in configuration, plan and state.
type appModel struct {
	Name        types.String   `tfsdk:"name"`
	Description types.String   `tfsdk:"description"`
	Enabled     types.Bool     `tfsdk:"enabled"`
	Weight      types.Number   `tfsdk:"weight"`
	Retention   durationString `tfsdk:"retention"`
	Revision    types.Int64    `tfsdk:"revision"`
}

func (r *appResource) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "An app: a namespace of jobs that you enable and disable as a whole. " +
			"Import it by name. You cannot destroy an app that still has jobs or calendars.",
		Attributes: map[string]schema.Attribute{
			"name":        nameAttribute("app", ""),
			"description": descriptionAttribute(),
			"enabled": boolWithDefault(true, "Whether the jobs of the app fire. Runs in flight finish in any case. Fires that come "+
				"due while the app is disabled are owed, as during a pause. When you enable the app again, a fire that is later than "+
				"`misfire_after` is a misfire and follows the `misfire_policy` of its trigger; each of the others still runs. If nothing "+
				"should be owed, set `enabled` of the jobs or triggers to `false` instead."),
			"weight": numberWithDefault(1, "Share of the app when fires of several apps wait for a node: the number of its turns "+
				"for each turn of an app of weight 1, from `1` to `100`."),
			"retention": durationWithDefault(dispatcher.DefaultRetention, "How long to keep runs, attempts and misfires of the app, "+
				"from `24h` to `87600h` (ten years). Whole UTC days are purged, and unfinished runs stay. A shorter retention takes "+
				"effect within minutes and cannot be undone."),
			"revision": revisionAttribute("app", ""),
		},
	}
}

func (r *appResource) ValidateConfig(
	ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse,
) {
	var config appModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	if resp.Diagnostics.HasError() {
		return
	}
	var e expander
	app := expandApp(&e, config)
	reportProblems(&resp.Diagnostics, e.problemsWith(app.Validate()))
}

func (r *appResource) ImportState(
	ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse,
) {
	var problems dispatcher.Problems
	dispatcher.CheckName(&problems, "", req.ID)
	if len(problems) > 0 {
		resp.Diagnostics.AddError("Invalid import id (import_id)",
			"Import an app by its name, such as billing: "+problems.Error())
		return
	}
	resource.ImportStatePassthroughID(ctx, path.Root("name"), req, resp)
}

// expandApp returns the app that a model describes.
func expandApp(e *expander, m appModel) dispatcher.App {
	var app dispatcher.App
	app.SetDefaults()
	app.Name = e.string("/name", m.Name)
	app.Description = e.string("/description", m.Description)
	app.Enabled = e.bool("/enabled", m.Enabled, app.Enabled)
	// The API takes zero for "left out", so a zero that somebody wrote is reported here.
	app.Weight = e.whole("/weight", m.Weight, app.Weight, dispatcher.CodeCountRange, "give a weight from 1 to 100")
	if app.Weight == 0 {
		e.problems.Add("/weight", dispatcher.CodeCountRange,
			"weight 0 is not in 1 to %d; to fire nothing, set enabled to false", dispatcher.MaxWeight)
	}
	app.Retention = e.duration("/retention", m.Retention, app.Retention)
	if given, err := dispatcher.ParseDuration(m.Retention.ValueString()); err == nil && given == 0 {
		e.problems.Add("/retention", dispatcher.CodeDurationMin,
			"duration 0s is less than the minimum of %s", dispatcher.MinRetention)
	}
	return app
}

// flattenApp returns the model of an app from the API.
func flattenApp(_ context.Context, _ *diag.Diagnostics, app dispatcher.App, _ appModel) appModel {
	return appModel{
		Name: types.StringValue(app.Name), Description: types.StringValue(app.Description),
		Enabled: types.BoolValue(app.Enabled), Weight: flattenNumber(app.Weight),
		Retention: flattenDuration(app.Retention), Revision: types.Int64Value(app.Revision),
	}
}
