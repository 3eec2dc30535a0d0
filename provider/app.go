package provider

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	dataschema "github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/provider/binding"
	"github.com/carillon-dev/carillon/provider/plan"
)

// appKind is what messages call an app.
const appKind = "app"

// apps is carillon_app.
func apps(c *connection) kind {
	return &definition[access.App]{
		heading: heading{appKind, appSchema, importApp}, conn: c,
		expand: expandedBy[access.App](appRows), flatten: flattenApp, check: access.App.Validate,
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
		planning: (*plan.Plan).OfApp,
		onRead:   func(c *connection, diags *diag.Diagnostics, app access.App) { c.WarnOfAppPauses(diags, app.Pauses) },
		onWrite: func(c *connection, diags *diag.Diagnostics, app access.App) {
			c.AppWritten(app)
			warnOfBreaks(diags, app)
		},
	}
}

var appRows = binding.Of(binding.Fresh[access.App],
	nameRow("app", func(a *access.App) *string { return &a.Name }),
	descriptionRow(func(a *access.App) *string { return &a.Description }),
	binding.Bool("enabled", func(a *access.App) *bool { return &a.Enabled }, binding.Default, "Whether the jobs of the app fire. "+
		"Runs in flight finish in any case. Fires that come due while the app is disabled are owed, as during a pause. When you "+
		"enable the app again, a fire that is later than `misfire_after` is a misfire and follows the `misfire_policy` of its "+
		"trigger; each of the others still runs. If nothing should be owed, set `enabled` of the jobs or triggers to `false` instead.",
		binding.Data("Whether the jobs of the app fire.")),
	binding.Duration("retention", func(a *access.App) *input.Duration { return &a.Retention }, binding.Default,
		"How long to keep runs, attempts and misfires of the app, from `24h` to `87600h` (ten years). Whole UTC days are purged, and "+
			"unfinished runs stay. A shorter retention takes effect within minutes and cannot be undone.", binding.Data(
			"How long the history of the app is kept: a duration."), binding.NotZero(input.CodeDurationMin, fmt.Sprintf(
			"duration 0s is less than the minimum of %s", input.MinRetention))),
	binding.Block("bounds", binding.Nested(func(a *access.App) **target.Bounds { return &a.Bounds }, boundsRows), binding.Optional,
		"What operators allow the app. Setting it needs a token with scope `admin` that is bound to no app; tokens that are bound to "+
			"the app read it and obey it. Jobs outside of it are refused at plan, and a change that jobs break stops these jobs and no "+
			"others. Default: Terraform does not manage the bounds. They stay as they are, also when you remove the block; a new app "+
			"gets the default of each. The data source `carillon_app` shows them.", binding.AsValue, binding.Data("What operators allow "+
			"the app, with the defaults; see the resource `carillon_app`.")),
	binding.Within(defaultsOf, binding.Text("default_timezone", func(d *dispatcher.JobDefaults) *string { return &d.Timezone },
		binding.Optional, "IANA time zone of triggers that name none and follow the wall clock, such as `Europe/Berlin`. Terraform "+
			"resolves this and the other defaults when it plans a job, so a change of them changes the jobs that leave the value out, and the "+
			"plan shows it. Default: none, so that each of these triggers must name its zone.", binding.Token("defaults/timezone"), binding.Data(
			"IANA time zone of triggers that name none and follow the wall clock.")), binding.Text("default_misfire_policy",
		func(d *dispatcher.JobDefaults) *dispatcher.MisfirePolicy { return &d.MisfirePolicy }, binding.Optional, "The `misfire_policy` of "+
			"triggers that have none. Default: `"+string(dispatcher.FireOnce)+"`.", binding.Token("defaults/misfire_policy"), binding.Data(
			"The `misfire_policy` of triggers that have none.")), binding.Text("default_concurrency_policy",
		func(d *dispatcher.JobDefaults) *run.ConcurrencyPolicy { return &d.ConcurrencyPolicy }, binding.Optional,
		"The `concurrency_policy` of jobs that have none. Default: `"+string(run.ConcurrencyAllow)+"`.", binding.Token(
			"defaults/concurrency_policy"), binding.Data("The `concurrency_policy` of jobs that have none.")), binding.Map("default_headers",
		func(d *dispatcher.JobDefaults) *map[string]string { return &d.Headers }, binding.Optional, "Headers that all webhooks and "+
			"requests to endpoint groups of the app send, unless they have a header of the same name. Default: none.", binding.Token(
			"defaults/headers"), binding.Data("Headers that all webhooks and requests to endpoint groups of the app send.")), binding.Block(
		"default_retry", binding.Nested(func(d *dispatcher.JobDefaults) **run.Retry { return &d.Retry }, retryRows), binding.Optional,
		"The `retry` of jobs without such a block. A job with the block takes nothing of it. Default: the general default of each argument.",
		binding.Token("defaults/retry"), binding.AsValue, binding.Data("The `retry` of jobs that have none; see the resource `carillon_job`."))),
	binding.Text("aws_external_id", func(a *access.App) *string { return &a.AWSExternalID }, binding.Computed,
		"External id with which nodes assume AWS roles for the app. A trust policy that demands it trusts no other app. It stays as "+
			"long as the app exists.", binding.Modified(stringplanmodifier.UseStateForUnknown()), binding.Data("External id with which "+
			"nodes assume AWS roles for the app.")),
	binding.Blocks("pauses", binding.Nested(func(a *access.App) *[]dispatcher.AppPause { return &a.Pauses }, pauseRows), binding.InData,
		"The pauses that hold jobs of the app now, oldest first. Those of single jobs are not among them.", binding.AlwaysThere),
	revisionRow("app", "", func(a *access.App) *int64 { return &a.Revision }),
	binding.Rule(func(_ *binding.Expander, _ string, _ binding.Values, of any) {
		app := of.(*access.App)
		app.Defaults = app.Defaults.Normal()
	}),
)

// defaultsOf returns the defaults of an app, which are attributes of their own in Terraform.
func defaultsOf(app *access.App) *dispatcher.JobDefaults {
	if app.Defaults == nil {
		app.Defaults = &dispatcher.JobDefaults{}
	}
	return app.Defaults
}

var pauseRows = binding.Of(binding.Fresh[dispatcher.AppPause],
	binding.Text("id", func(p *dispatcher.AppPause) *string { return &p.ID }, binding.InData, "Names the pause for `carillon pause "+
		"remove`."),
	binding.Map("labels", func(p *dispatcher.AppPause) *input.Labels { return &p.Labels }, binding.InData, "Labels of the jobs that "+
		"it holds; null if it holds every job of the app."),
	binding.Text("reason", func(p *dispatcher.AppPause) *string { return &p.Reason }, binding.InData, "Why; null if nobody said.",
		binding.EmptyIsNull),
	binding.Text("paused_by", func(p *dispatcher.AppPause) *string { return &p.PausedBy }, binding.InData, "The token that paused, "+
		"or another actor of the audit log."),
	binding.Instant("paused_at", func(p *dispatcher.AppPause) **time.Time { return new(&p.PausedAt) }, binding.InData, "Since when."),
	binding.Instant("until", func(p *dispatcher.AppPause) **time.Time { return &p.Until }, binding.InData, "When it ends by itself; "+
		"null if somebody has to end it."),
)

func appSchema() schema.Schema {
	return schema.Schema{
		MarkdownDescription: "An app: a namespace of jobs that you enable and disable as a whole. " +
			"Import it by name. You cannot destroy an app that still has jobs, calendars or endpoint groups.",
		Attributes: appRows.Attributes(),
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

// flattenApp returns an app from the API. prior is the plan or state that it replaces.
func flattenApp(_ context.Context, diags *diag.Diagnostics, app access.App, prior binding.Values) binding.Values {
	app.Bounds = shownBounds(app, prior.Object("bounds"))
	return appRows.Flatten(diags, &app, prior)
}

// newAppDataSource returns carillon_app: an app with its bounds.
func newAppDataSource() datasource.DataSource {
	return &dataSource{name: "app", read: readApp, schema: func() dataschema.Schema {
		return dataschema.Schema{
			MarkdownDescription: "An app, with the bounds that operators have set and the external id for trust policies in AWS.",
			Attributes:          appRows.DataAttributes(),
		}
	}}
}

func readApp(ctx context.Context, c *connection, diags *diag.Diagnostics, config binding.Values) binding.Values {
	name := config.Text("name").ValueString()
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
	return appRows.Shown(diags, &app)
}
