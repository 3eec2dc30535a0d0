package provider

import (
	"context"
	"math/big"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/numberdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
)

var (
	_ resource.ResourceWithConfigure      = (*appResource)(nil)
	_ resource.ResourceWithImportState    = (*appResource)(nil)
	_ resource.ResourceWithValidateConfig = (*appResource)(nil)
)

// appResource is carillon_app.
type appResource struct {
	definition[appModel, dispatcher.App]
}

func newAppResource() resource.Resource {
	r := &appResource{}
	r.kind = "app"
	r.api = calls[appModel, dispatcher.App]{
		put: func(ctx context.Context, conn *connection, w write[appModel], cond client.Condition) (dispatcher.App, error) {
			return conn.PutApp(ctx, readApp(&reader{}, w.plan), cond)
		},
		read: func(ctx context.Context, conn *connection, m appModel) (dispatcher.App, error) {
			return conn.App(ctx, m.Name.ValueString())
		},
		remove: func(ctx context.Context, conn *connection, m appModel, cond client.Condition) error {
			return conn.DeleteApp(ctx, m.Name.ValueString(), cond)
		},
		model:    newAppModel,
		id:       func(m appModel) string { return m.Name.ValueString() },
		revision: func(m appModel) types.Int64 { return m.Revision },
		current:  func(app dispatcher.App) int64 { return app.Revision },
		warnings: noWarnings[dispatcher.App],
	}
	return r
}

// appModel is a carillon_app as configuration, plan and state hold it.
type appModel struct {
	Name        types.String    `tfsdk:"name"`
	Description types.String    `tfsdk:"description"`
	Enabled     types.Bool      `tfsdk:"enabled"`
	Weight      types.Number    `tfsdk:"weight"`
	Retention   text[durations] `tfsdk:"retention"`
	Revision    types.Int64     `tfsdk:"revision"`
}

// nameRule describes the rule of dispatcher.CheckName, for the pages.
const nameRule = "1 to 63 of `a-z`, `0-9`, `_` and `-`, beginning with a letter or digit"

func (r *appResource) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "An app: a namespace of jobs that is switched on and off as a whole. " +
			"Import by name. An app that still has jobs or calendars cannot be destroyed.",
		Attributes: map[string]schema.Attribute{
			"name": schema.StringAttribute{
				Required:            true,
				MarkdownDescription: "Name of the app: " + nameRule + ". Changing it replaces the app.",
				PlanModifiers:       []planmodifier.String{stringplanmodifier.RequiresReplace()},
			},
			"description": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(""),
				MarkdownDescription: "Free text of at most 1024 characters. Default: empty.",
			},
			"enabled": schema.BoolAttribute{
				Optional: true, Computed: true, Default: booldefault.StaticBool(true),
				MarkdownDescription: "Whether the jobs of the app fire. Runs in flight finish in any case. Fires that come due meanwhile are " +
					"owed, as during a pause of a job, trigger or node: when the app is switched on again, those later than " +
					"`misfire_after` are settled by the `misfire_policy` of their trigger, and those within it fire late, each one. " +
					"To owe nothing, set `enabled` of the job or trigger to `false` instead. Default: `true`.",
			},
			"weight": schema.NumberAttribute{
				Optional: true, Computed: true, Default: numberdefault.StaticBigFloat(big.NewFloat(1)),
				MarkdownDescription: "How many turns the app has where fires of several wait for a node, against one of weight 1: `1` to `100`. Default: `1`.",
			},
			"retention": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(formatDuration(dispatcher.DefaultRetention)),
				CustomType: textType[durations]{},
				MarkdownDescription: "How long runs, attempts and misfires of the app are kept: `24h` to `87600h` (ten years). They are removed " +
					"by whole UTC days; what is not finished stays. Less takes effect within minutes and cannot be undone. Default: `720h` (30 days).",
				PlanModifiers: []planmodifier.String{keepIfSame[durations]{}},
			},
			"revision": schema.Int64Attribute{
				Computed:            true,
				MarkdownDescription: "Counts the changes of the app. An update that was planned for another revision is refused.",
			},
		},
	}
}

func (r *appResource) ValidateConfig(ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse) {
	var config appModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	if resp.Diagnostics.HasError() {
		return
	}
	var read reader
	app := readApp(&read, config)
	reportProblems(&resp.Diagnostics, read.judge(app.Validate()))
}

func (r *appResource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	var problems dispatcher.Problems
	dispatcher.CheckName(&problems, "", req.ID)
	if len(problems) > 0 {
		resp.Diagnostics.AddError("Invalid import id (import_id)", "An app is imported by its name, such as billing: "+problems.Error())
		return
	}
	resource.ImportStatePassthroughID(ctx, path.Root("name"), req, resp)
}

// readApp returns the app that a model describes.
func readApp(read *reader, m appModel) dispatcher.App {
	var app dispatcher.App
	app.SetDefaults()
	app.Name = read.text("/name", m.Name)
	app.Description = read.text("/description", m.Description)
	app.Enabled = read.bool("/enabled", m.Enabled, app.Enabled)
	if !m.Weight.IsNull() {
		app.Weight = read.whole("/weight", m.Weight, dispatcher.CodeCountRange, "give a weight from 1 to 100")
		if app.Weight == 0 && !m.Weight.IsUnknown() { // which the API takes for left out
			read.problems.Add("/weight", dispatcher.CodeCountRange, "weight 0 is not in 1 to %d; to fire nothing, set enabled to false", dispatcher.MaxWeight)
		}
	}
	app.Retention = read.duration("/retention", m.Retention, app.Retention)
	if given, err := dispatcher.ParseDuration(m.Retention.ValueString()); err == nil && given == 0 { // likewise
		read.problems.Add("/retention", dispatcher.CodeDurationMin, "duration 0s is less than the minimum of %s", dispatcher.MinRetention)
	}
	return app
}

// newAppModel returns the model of an app that the API answered.
func newAppModel(_ context.Context, app dispatcher.App, _ appModel) (appModel, diag.Diagnostics) {
	return appModel{
		Name:        types.StringValue(app.Name),
		Description: types.StringValue(app.Description),
		Enabled:     types.BoolValue(app.Enabled),
		Weight:      types.NumberValue(big.NewFloat(float64(app.Weight))),
		Retention:   newText[durations](formatDuration(app.Retention)),
		Revision:    types.Int64Value(app.Revision),
	}, nil
}
