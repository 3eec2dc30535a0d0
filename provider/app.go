package provider

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
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

// appKind is the name of apps in messages.
const appKind = "app"

// apps is carillon_app.
func apps(c *connection) kind {
	return &definition[access.App]{
		heading: heading{appKind, appRows, importApp,
			"An app: a namespace of jobs that you enable and disable as a whole. " +
				"Import it by name. You cannot destroy an app that still has jobs, calendars or endpoint groups."},
		conn: c, check: access.App.Validate, shown: shownApp,
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
	binding.Shown("id", func(a *access.App) string { return a.Name }, binding.Computed, "The import id, the name of the app.",
		binding.Data("The import id, the name of the app.")),
	nameRow("app", func(a *access.App) *string { return &a.Name }),
	descriptionRow(func(a *access.App) *string { return &a.Description }),
	binding.Bool("enabled", func(a *access.App) *bool { return &a.Enabled }, binding.Default, "Whether the jobs of the app fire. "+
		"Runs in flight finish in any case. Fires that come due while the app is disabled are owed, as during a pause. When you "+
		"enable the app again, the `misfire_policy` of a trigger decides about all of its owed fires if one is later than "+
		"`misfire_after`; otherwise each runs. If nothing should be owed, set `enabled` of the jobs or triggers to `false` instead.",
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
	binding.Within(func(a *access.App) *dispatcher.JobDefaults {
		if a.Defaults == nil {
			a.Defaults = &dispatcher.JobDefaults{}
		}
		return a.Defaults
	}, binding.Text("default_timezone", func(d *dispatcher.JobDefaults) *string { return &d.Timezone },
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

// warnOfBreaks warns of the jobs and alerts that a change of bounds breaks.
func warnOfBreaks(diags *diag.Diagnostics, app access.App) {
	if app.Breaks.None() {
		return
	}
	var jobs, alerts strings.Builder
	for _, job := range app.Breaks.Jobs {
		fmt.Fprintf(&jobs, "\n  %s: %s", job.Job, messagesOf(job.Problems))
	}
	if count := app.Breaks.Count; count > 0 {
		diags.AddAttributeWarning(path.Root("bounds"), fmt.Sprintf("Jobs outside the bounds of app %q: %d", app.Name, count),
			"Their attempts fail with class bounds until you change the jobs or the bounds; the other jobs go on. Jobs that this apply "+
				"changes next may be within the bounds then:"+jobs.String())
	}
	for _, alert := range app.Breaks.Alerts {
		fmt.Fprintf(&alerts, "\n  %s: %s", alert.Alert, messagesOf(alert.Problems))
	}
	if count := len(app.Breaks.Alerts); count > 0 {
		diags.AddAttributeWarning(path.Root("bounds"), fmt.Sprintf("Alerts outside the bounds of app %q: %d", app.Name, count),
			"Nobody gets their notifications until you change the alerts or the bounds; the other alerts go on:"+alerts.String())
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

// appSource is carillon_app: an app with its bounds.
var appSource = dataSource{
	name: "app", attributes: appRows.DataAttributes, read: readApp,
	text: "An app, with the bounds that operators have set and the external id for trust policies in AWS.",
}

func readApp(ctx context.Context, c *connection, diags *diag.Diagnostics, config binding.Values) binding.Values {
	name := config.Text("name").ValueString()
	if !validNames(diags, config, "name") {
		return config
	}
	app, err := c.App(ctx, name)
	if err != nil {
		c.report(diags, fmt.Sprintf("read app %q", name), err)
		return config
	}
	return appRows.Shown(diags, &app)
}

var boundsRows = binding.Of(func() *target.Bounds { return &target.Bounds{Weight: 1, Quotas: *standardQuotas()} },
	binding.Bool("suspended", func(b *target.Bounds) *bool { return &b.Suspended }, binding.Default, "Stops the app: nodes claim no "+
		"fire and send no request for it, and the app's owner cannot lift that. Runs wait; afterwards they follow `misfire_policy`, "+
		"as with `enabled`."),
	binding.Text("suspended_reason", func(b *target.Bounds) *string { return &b.SuspendedReason }, binding.Default,
		"Why the app is suspended, shown to its owner; at most 1024 characters. Default: empty.", binding.EmptyIsValue),
	countRow("weight", func(b *target.Bounds) *int { return &b.Weight }, binding.Default, "How many turns the app gets for each turn "+
		"of an app with weight 1 when fires of several apps wait for a node, `1` to `100`."),
	binding.Texts("secrets", func(b *target.Bounds) *[]string { return &b.Secrets }, binding.Optional, "References that jobs may "+
		"use: `env:SECRET_NAME`, `file:PATH`, `awssm:NAME`, `ssm:NAME` or `vault:PATH`, each with `*` for any text. One of the last "+
		"three without key and version allows all of them; `[]`: none. Default: `env:SECRET_<APP>_*` and `file:<app>/*`.",
		binding.NilIsNull),
	binding.Part("quotas", binding.Nested(func(b *target.Bounds) *target.Quotas { return &b.Quotas }, quotasRows), binding.Optional,
		"How much of the installation the app may use. What is over a quota that you lower stays; no more is added. Default: the "+
			"default of each argument."),
	binding.Part("egress", binding.Nested(func(b *target.Bounds) *target.EgressBounds { return &b.Egress }, egressRows), binding.Optional,
		"Addresses that webhooks may call. Nodes check the address that they dial, too. Default: any public address, and what "+
			"`--egress-private` of the nodes lists."),
	binding.Part("lambda", binding.Nested(func(b *target.Bounds) *target.LambdaBounds { return &b.Lambda }, lambdaBoundsRows),
		binding.Optional, "Functions and roles that jobs may use, as patterns in which `*` stands for any text and `?` for any character. "+
			"Default: none."),
	binding.Part("sqs", binding.Nested(func(b *target.Bounds) *target.SQSBounds { return &b.SQS }, sqsBoundsRows), binding.Optional,
		"Queues and roles that jobs may use, as patterns in which `*` stands for any text and `?` for any character. Default: none."),
	binding.Part("sns", binding.Nested(func(b *target.Bounds) *target.SNSBounds { return &b.SNS }, snsBoundsRows), binding.Optional,
		"Topics and roles that jobs may use, as patterns in which `*` stands for any text and `?` for any character. Default: none."),
	binding.Blocks("sign_as_node", binding.Nested(func(b *target.Bounds) *[]target.SignatureBound { return &b.SignAsNode }, signatureRows),
		binding.Optional, "A service for which webhooks may sign requests with the AWS credentials of the node. Default: none.",
		binding.AlwaysThere),
)

// countRow is a number where zero is invalid, because the API takes it for the default.
func countRow[P any, N ~int | ~int64](name string, field func(P) *N, of binding.Presence, text string,
	options ...binding.Option) *binding.Row {
	return binding.Whole(name, field, of, text, append(options,
		binding.NotZero(input.CodeCountRange, "0 is less than the minimum of 1; leave it out for the default"))...)
}

func standardQuotas() *target.Quotas {
	b := target.Bounds{}.WithDefaults("")
	return &b.Quotas
}

var quotasRows = binding.Of(standardQuotas,
	countRow("jobs", func(q *target.Quotas) *int { return &q.Jobs }, binding.Default, "Jobs of the app, `1` to `1000000`."),
	countRow("triggers", func(q *target.Quotas) *int { return &q.Triggers }, binding.Default, "Triggers of all jobs of the app, `1` "+
		"to `10000000`."),
	countRow("waiting_runs", func(q *target.Quotas) *int { return &q.WaitingRuns }, binding.Default, "Runs that wait, above which "+
		"requests for runs are refused and what follows runs is set aside, `1` to `10000000`."),
	countRow("chain_runs", func(q *target.Quotas) *int { return &q.ChainRuns }, binding.Default, "Runs that may follow one run, "+
		"directly and through others, `1` to `1000000`. Shards of broadcasts count."),
	countRow("chain_depth", func(q *target.Quotas) *int { return &q.ChainDepth }, binding.Default, "Runs that may follow one after "+
		"another, `1` to `1000`."),
	countRow("requests_per_minute", func(q *target.Quotas) *int { return &q.RequestsPerMinute }, binding.Default,
		"Requests to the API by tokens that are bound to the app, for each node, `1` to `1000000`."),
	countRow("manual_runs_per_minute", func(q *target.Quotas) *int { return &q.ManualRunsPerMinute }, binding.Default,
		"Requests to run or retry a job, `1` to `1000000`."),
	countRow("bytes_kept", func(q *target.Quotas) *int64 { return &q.BytesKept }, binding.Default, "Bytes of responses, and of what "+
		"runs were given, in the history, from 1 MiB to 10 TiB. Above it, nodes record outcomes without the responses, and requests "+
		"with a payload are refused."),
	binding.Duration("retention", func(q *target.Quotas) *input.Duration { return &q.Retention }, binding.Default,
		"The longest `retention` that the app may choose, from `24h` to `87600h`."),
)

var egressRows = binding.Of(binding.Fresh[target.EgressBounds],
	binding.Texts("hosts", func(e *target.EgressBounds) *[]string { return &e.Hosts }, binding.Optional, "Hosts that a URL may hold, "+
		"or `*.example.com` for all names below; `[]`: none. Default: any.", binding.NilIsNull),
	binding.Texts("networks", func(e *target.EgressBounds) *[]string { return &e.Networks }, binding.Optional, "Networks that may be "+
		"dialled: `public` for all public addresses, or a CIDR, which alone opens a private network to the app; `[]`: none. Default: "+
		"`public`, and what `--egress-private` of the nodes lists.", binding.NilIsNull),
	binding.Wholes("ports", func(e *target.EgressBounds) *[]int { return &e.Ports }, binding.Optional, "Ports that a URL may lead "+
		"to; `[]`: none. Default: any.", binding.NilIsNull, portAdvice),
)

var portAdvice = binding.Advice(input.CodeCountRange, "give a port from 1 to 65535")

const rolesText = "ARNs of roles to assume. Default: none."

var lambdaBoundsRows = binding.Of(binding.Fresh[target.LambdaBounds],
	binding.Texts("functions", func(b *target.LambdaBounds) *[]string { return &b.Functions }, binding.Default,
		"Functions, as targets name them, without version or alias. Default: none."),
	binding.Texts("roles", func(b *target.LambdaBounds) *[]string { return &b.Roles }, binding.Default, rolesText),
)

var sqsBoundsRows = binding.Of(binding.Fresh[target.SQSBounds],
	binding.Texts("queues", func(b *target.SQSBounds) *[]string { return &b.Queues }, binding.Default, "ARNs of queues. Default: none."),
	binding.Texts("roles", func(b *target.SQSBounds) *[]string { return &b.Roles }, binding.Default, rolesText),
)

var snsBoundsRows = binding.Of(binding.Fresh[target.SNSBounds],
	binding.Texts("topics", func(b *target.SNSBounds) *[]string { return &b.Topics }, binding.Default, "ARNs of topics. Default: none."),
	binding.Texts("roles", func(b *target.SNSBounds) *[]string { return &b.Roles }, binding.Default, rolesText),
)

var signatureRows = binding.Of(binding.Fresh[target.SignatureBound],
	binding.Text("service", func(s *target.SignatureBound) *string { return &s.Service }, binding.Required,
		"Service in the signature, such as `execute-api`."),
	binding.Texts("hosts", func(s *target.SignatureBound) *[]string { return &s.Hosts }, binding.Required, "Hosts that may get such "+
		"requests, or `*.example.com` for all names below."),
)

// shownApp returns an app with the bounds that prior has: none if prior has none, and without
// default secrets that prior omits. A plan cannot add what the configuration leaves out.
func shownApp(app access.App, prior binding.Values) access.App {
	written := prior.Object("bounds")
	if written.IsNull() || written.IsUnknown() {
		app.Bounds = nil
		return app
	}
	standard := target.Bounds{}.WithDefaults(app.Name)
	bounds := standard
	if app.Bounds != nil {
		bounds = *app.Bounds
	}
	if binding.In(written).List("secrets").IsNull() && slices.Equal(bounds.Secrets, standard.Secrets) {
		bounds.Secrets = nil
	}
	app.Bounds = &bounds
	return app
}
