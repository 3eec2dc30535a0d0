package provider

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
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

type appResource struct{ conn *connection }

func newAppResource() resource.Resource { return &appResource{} }

// appModel is a carillon_app as configuration, plan and state hold it.
type appModel struct {
	Name        types.String `tfsdk:"name"`
	Description types.String `tfsdk:"description"`
	Enabled     types.Bool   `tfsdk:"enabled"`
	Revision    types.Int64  `tfsdk:"revision"`
}

func (r *appResource) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_app"
}

// nameRule describes the rule of dispatcher.CheckName, for the pages.
const nameRule = "1 to 63 of `a-z`, `0-9`, `_` and `-`, beginning with a letter or digit"

func (r *appResource) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "An app: a namespace of jobs that is switched on and off as a whole. " +
			"Import by name. An app that still has jobs cannot be destroyed.",
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
					"`misfire_after` are settled as one catch-up run, and those within it fire late, each one. To owe nothing, " +
					"set `enabled` of the job or trigger to `false` instead. Default: `true`.",
			},
			"revision": schema.Int64Attribute{
				Computed:            true,
				MarkdownDescription: "Counts the changes of the app. An update that was planned for another revision is refused.",
			},
		},
	}
}

func (r *appResource) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	r.conn = configured(req.ProviderData)
}

func (r *appResource) ValidateConfig(ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse) {
	var config appModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	if resp.Diagnostics.HasError() {
		return
	}
	var read reader
	app := readApp(&read, config)
	reportFaults(&resp.Diagnostics, read.judge(app.Validate()))
}

func (r *appResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var plan appModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	if resp.Diagnostics.HasError() || !r.conn.ready(&resp.Diagnostics) {
		return
	}
	app, err := r.conn.PutApp(ctx, readApp(&reader{}, plan), client.Condition{Absent: true})
	switch name := plan.Name.ValueString(); {
	case errors.Is(err, dispatcher.ErrPrecondition):
		reportExisting(&resp.Diagnostics, "app", name)
	case err != nil:
		r.conn.report(&resp.Diagnostics, fmt.Sprintf("create app %q", name), err)
	default:
		resp.Diagnostics.Append(resp.State.Set(ctx, newAppModel(app))...)
	}
}

func (r *appResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var state appModel
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() || !r.conn.ready(&resp.Diagnostics) {
		return
	}
	app, err := r.conn.App(ctx, state.Name.ValueString())
	switch {
	case absent(err):
		resp.State.RemoveResource(ctx)
	case err != nil:
		r.conn.report(&resp.Diagnostics, fmt.Sprintf("read app %q", state.Name.ValueString()), err)
	default:
		resp.Diagnostics.Append(resp.State.Set(ctx, newAppModel(app))...)
	}
}

func (r *appResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var plan, state appModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() || !r.conn.ready(&resp.Diagnostics) {
		return
	}
	app, err := r.conn.PutApp(ctx, readApp(&reader{}, plan), client.Condition{Revision: state.Revision.ValueInt64()})
	switch {
	case errors.Is(err, dispatcher.ErrPrecondition):
		r.stale(ctx, &resp.Diagnostics, state)
	case err != nil:
		r.conn.report(&resp.Diagnostics, fmt.Sprintf("update app %q", plan.Name.ValueString()), err)
	default:
		resp.Diagnostics.Append(resp.State.Set(ctx, newAppModel(app))...)
	}
}

func (r *appResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var state appModel
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() || !r.conn.ready(&resp.Diagnostics) {
		return
	}
	name := state.Name.ValueString()
	err := r.conn.DeleteApp(ctx, name, client.Condition{Revision: state.Revision.ValueInt64()})
	switch {
	case err == nil || absent(err):
	case errors.Is(err, dispatcher.ErrPrecondition):
		r.stale(ctx, &resp.Diagnostics, state)
	default:
		r.conn.report(&resp.Diagnostics, fmt.Sprintf("delete app %q", name), err)
	}
}

func (r *appResource) stale(ctx context.Context, diags *diag.Diagnostics, state appModel) {
	name := state.Name.ValueString()
	r.conn.reportStale(diags, "app", name, state.Revision.ValueInt64(), func() (int64, error) {
		app, err := r.conn.App(ctx, name)
		return app.Revision, err
	})
}

func (r *appResource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	var faults dispatcher.Faults
	dispatcher.CheckName(&faults, "", req.ID)
	if len(faults) > 0 {
		resp.Diagnostics.AddError("Invalid import id (import_id)", "An app is imported by its name, such as billing: "+faults.Error())
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
	return app
}

// newAppModel returns the model of an app that the API answered.
func newAppModel(app dispatcher.App) appModel {
	return appModel{
		Name:        types.StringValue(app.Name),
		Description: types.StringValue(app.Description),
		Enabled:     types.BoolValue(app.Enabled),
		Revision:    types.Int64Value(app.Revision),
	}
}
