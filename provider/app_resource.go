package provider

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// appKind is what messages call an app.
const appKind = "app"

// apps is carillon_app.
func apps(c *connection) kind[appModel] {
	return &definition[access.App, appModel]{
		heading: heading{appKind, appSchema, importApp}, conn: c,
		expand: expandApp, flatten: flattenApp, check: access.App.Validate,
		api: requests[access.App]{
			put: (*client.Client).PutApp,
			get: func(c *client.Client, ctx context.Context, _, name string) (access.App, error) {
				return c.App(ctx, name)
			},
			remove: func(c *client.Client, ctx context.Context, _, name string, cond client.Condition) error {
				return c.DeleteApp(ctx, name, cond)
			},
			revision: func(app access.App) int64 { return app.Revision },
		},
		planning: planApp,
		onRead:   func(c *connection, diags *diag.Diagnostics, app access.App) { c.warnOfAppPauses(diags, app.Pauses) },
		onWrite: func(c *connection, diags *diag.Diagnostics, app access.App) {
			c.bounds.set(app.Name, app.Bounds)
			c.defaults.set(app.Name, plannedDefaults{app.Defaults, true})
			warnOfBreaks(diags, app)
		},
	}
}

// appModel is a carillon_app in configuration, plan and state.
type appModel struct {
	Name          types.String   `tfsdk:"name"`
	Description   types.String   `tfsdk:"description"`
	Enabled       types.Bool     `tfsdk:"enabled"`
	Retention     durationString `tfsdk:"retention"`
	Bounds        types.Object   `tfsdk:"bounds"`
	AWSExternalID types.String   `tfsdk:"aws_external_id"`

	DefaultTimezone          types.String `tfsdk:"default_timezone"`
	DefaultHeaders           types.Map    `tfsdk:"default_headers"`
	DefaultMisfirePolicy     types.String `tfsdk:"default_misfire_policy"`
	DefaultConcurrencyPolicy types.String `tfsdk:"default_concurrency_policy"`
	DefaultRetry             types.Object `tfsdk:"default_retry"`

	Revision types.Int64 `tfsdk:"revision"`
}

func (m appModel) identity() identity {
	return identity{name: m.Name.ValueString(), importID: m.Name.ValueString(), revision: m.Revision.ValueInt64()}
}

func appSchema() schema.Schema {
	return schema.Schema{
		MarkdownDescription: "An app: a namespace of jobs that you enable and disable as a whole. " +
			"Import it by name. You cannot destroy an app that still has jobs, calendars or endpoint groups.",
		Attributes: map[string]schema.Attribute{
			"name":        nameAttribute("app", ""),
			"description": descriptionAttribute(),
			"enabled": boolWithDefault(true, "Whether the jobs of the app fire. Runs in flight finish in any case. Fires that come "+
				"due while the app is disabled are owed, as during a pause. When you enable the app again, a fire that is later than "+
				"`misfire_after` is a misfire and follows the `misfire_policy` of its trigger; each of the others still runs. If nothing "+
				"should be owed, set `enabled` of the jobs or triggers to `false` instead."),
			"retention": durationWithDefault(input.DefaultRetention, "How long to keep runs, attempts and misfires of the app, "+
				"from `24h` to `87600h` (ten years). Whole UTC days are purged, and unfinished runs stay. A shorter retention takes "+
				"effect within minutes and cannot be undone."),
			"default_timezone": optionalString("IANA time zone of triggers that name none and follow the wall clock, such as " +
				"`Europe/Berlin`. Terraform resolves this and the other defaults when it plans a job, so a change of them changes the " +
				"jobs that leave the value out, and the plan shows it. Default: none, so that each of these triggers must name its zone."),
			"default_headers": optionalStringMap("Headers that all webhooks and requests to endpoint groups of the app send, unless " +
				"they have a header of the same name. Default: none."),
			"default_misfire_policy": optionalString("The `misfire_policy` of triggers that have none. Default: `" +
				string(dispatcher.FireOnce) + "`."),
			"default_concurrency_policy": optionalString("The `concurrency_policy` of jobs that have none. Default: `" +
				string(run.ConcurrencyAllow) + "`."),
			"default_retry": defaultRetryAttribute(),
			"bounds":        boundsAttribute(),
			"aws_external_id": schema.StringAttribute{
				Computed: true,
				MarkdownDescription: "External id with which nodes assume AWS roles for the app. A trust policy that demands it trusts " +
					"no other app. It stays as long as the app exists.",
				PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
			},
			"revision": revisionAttribute("app", ""),
		},
	}
}

// planApp notes the bounds and defaults that the plan gives the app, so that its jobs are planned with them.
func planApp(_ context.Context, c *connection, _ *diag.Diagnostics, p planned[access.App]) {
	name, bounds := p.declared.Name, p.declared.Bounds
	if p.e.isUnknown("/name") {
		return
	}
	c.defaults.set(name, plannedDefaults{p.declared.Defaults, p.e.allKnown("/defaults")})
	switch {
	case !p.e.allKnown("/bounds"):
		c.bounds.set(name, nil)
	case bounds != nil:
		c.bounds.set(name, new(bounds.WithDefaults(name)))
	case p.isNew: // an app that was deleted keeps its bounds, so only the API knows them
		c.bounds.set(name, nil)
	}
}

// warnOfBreaks warns of what a change of bounds breaks.
func warnOfBreaks(diags *diag.Diagnostics, app access.App) {
	if app.Breaks.None() {
		return
	}
	var lines strings.Builder
	for _, job := range app.Breaks.Jobs {
		fmt.Fprintf(&lines, "\n  %s: %s", job.Job, input.Problems(job.Problems))
	}
	if count := app.Breaks.Count; count > 0 {
		diags.AddAttributeWarning(path.Root("bounds"), fmt.Sprintf("%d jobs are outside the bounds of app %q", count, app.Name),
			"Their attempts fail with class bounds until you change the jobs or the bounds; the other jobs go on:"+lines.String())
	}
	lines.Reset()
	for _, alert := range app.Breaks.Alerts {
		fmt.Fprintf(&lines, "\n  %s: %s", alert.Alert, input.Problems(alert.Problems))
	}
	if count := len(app.Breaks.Alerts); count > 0 {
		diags.AddAttributeWarning(path.Root("bounds"), fmt.Sprintf("%d alerts are outside the bounds of app %q", count, app.Name),
			"Nobody gets their notifications until you change the alerts or the bounds; the other alerts go on:"+lines.String())
	}
}

func importApp(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	var problems input.Problems
	input.CheckName(&problems, "", req.ID)
	if len(problems) > 0 {
		resp.Diagnostics.AddError("Invalid import id (import_id)",
			"Import an app by its name, such as billing: "+problems.Error())
		return
	}
	resource.ImportStatePassthroughID(ctx, path.Root("name"), req, resp)
}

// expandApp returns the app that a model describes.
func expandApp(ctx context.Context, e *expander, m appModel) access.App {
	var app access.App
	app.SetDefaults()
	app.Name = e.string("/name", m.Name)
	app.Description = e.string("/description", m.Description)
	app.Enabled = e.bool("/enabled", m.Enabled, app.Enabled)
	// The API takes zero for "left out", so a zero that somebody wrote is reported here.
	app.Retention = e.duration("/retention", m.Retention, app.Retention)
	if given, err := input.ParseDuration(m.Retention.ValueString()); err == nil && given == 0 {
		e.problems.Add("/retention", input.CodeDurationMin,
			"duration 0s is less than the minimum of %s", input.MinRetention)
	}
	app.Bounds, app.Defaults = expandBounds(ctx, e, m.Bounds), expandDefaults(ctx, e, m)
	return app
}

// flattenApp returns the model of an app from the API. prior is the plan or state that it replaces.
func flattenApp(ctx context.Context, diags *diag.Diagnostics, app access.App, prior appModel) appModel {
	bounds := target.Bounds{}.WithDefaults(app.Name)
	if app.Bounds != nil {
		bounds = *app.Bounds
	}
	m := appModel{
		Bounds: flattenBounds(ctx, diags, app.Name, bounds, prior.Bounds), AWSExternalID: types.StringValue(app.AWSExternalID),
		Name:        types.StringValue(app.Name),
		Description: types.StringValue(app.Description),
		Enabled:     types.BoolValue(app.Enabled),
		Retention:   flattenDuration(app.Retention),
		Revision:    types.Int64Value(app.Revision),
	}
	flattenDefaults(ctx, diags, app.Defaults, prior, &m)
	return m
}
