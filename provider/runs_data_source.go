package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/provider/binding"
)

// The numbers of runs that one read returns. A page of the API has at most maxLimit.
const (
	defaultLimit = 100
	maxLimit     = 1000
)

// queryAttributes select the runs or misfires of an app. timed names the objects that their times bound.
func queryAttributes(what, timed string) map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"app": schema.StringAttribute{Required: true, MarkdownDescription: "Name of the app."},
		"job": schema.StringAttribute{Optional: true, MarkdownDescription: "Only " + what + " of the job with this name. Default: all."},
		"trigger": schema.StringAttribute{
			Optional:            true,
			Validators:          []validator.String{stringvalidator.AlsoRequires(path.MatchRoot("job"))},
			MarkdownDescription: "Only " + what + " of the trigger with this name; needs `job`. Default: all.",
		},
		"from": schema.StringAttribute{
			Optional:            true,
			MarkdownDescription: "Only " + timed + " at or after this instant, in RFC 3339 with a time zone. Default: no limit.",
		},
		"to": schema.StringAttribute{
			Optional:            true,
			MarkdownDescription: "Only " + timed + " at or before this instant, in RFC 3339 with a time zone. Default: no limit.",
		},
		"limit": schema.NumberAttribute{
			Optional:            true,
			MarkdownDescription: fmt.Sprintf("How many %s to return at most, from 1 to %d. Default: `%d`.", what, maxLimit, defaultLimit),
		},
	}
}

// runsSource is carillon_runs: the runs of an app that match a query.
var runsSource = dataSource{
	name: "runs", text: "The runs of an app, with the latest scheduled time first.", validate: validateRuns,
	read: readQuery("runs", runsRows, expandRunQuery, (*client.Client).Runs),
	attributes: func() map[string]schema.Attribute {
		attributes := queryAttributes("runs", "runs scheduled")
		var states []string
		for _, state := range run.States {
			states = append(states, string(state))
		}
		attributes["state"] = schema.StringAttribute{
			Optional:            true,
			Validators:          []validator.String{stringvalidator.OneOf(states...)},
			MarkdownDescription: "Only runs in this state: " + either(run.States) + ". Default: all.",
		}
		attributes["parent"] = schema.StringAttribute{
			Optional: true,
			MarkdownDescription: "Only the shards of the broadcast with this run id, the highest index first. " +
				"Default: all runs except shards.",
		}
		maps.Copy(attributes, runsRows.DataAttributes())
		return attributes
	},
}

var runsRows = binding.Of(binding.Fresh[client.List[run.Run]],
	binding.Blocks("runs", binding.Nested(func(l *client.List[run.Run]) *[]run.Run { return &l.Items }, binding.Of(binding.Fresh[run.Run],
		runRows)), binding.InData, "The runs, with the latest scheduled time first.", binding.AlwaysThere),
)

var runRows = binding.List{
	binding.Text("id", func(r *run.Run) *string { return &r.ID }, binding.InData, "Id of the run."),
	binding.Text("job", func(r *run.Run) *string { return &r.Job }, binding.InData, "Name of the job."),
	binding.Text("trigger", func(r *run.Run) *string { return &r.Trigger }, binding.InData, "Name of the trigger; empty for a run "+
		"that belongs to none, such as a manual one."),
	binding.Text("kind", func(r *run.Run) *run.Kind { return &r.Kind }, binding.InData, "Why the run exists: `schedule`, `manual`, "+
		"`catch_up` (it stands for misfires), `chain` (the end of another run asked for it), `backfill` (part of a backfill), "+
		"`alert` (delivers a notification) or `follow` (delivers the end of a run)."),
	binding.Text("state", func(r *run.Run) *run.State { return &r.State }, binding.InData, "State of the run: "+either(run.States)+"."),
	binding.Instant("scheduled_at", func(r *run.Run) **time.Time { return new(&r.ScheduledAt) }, binding.InData,
		"Scheduled time of the fire that the run executes."),
	binding.Instant("started_at", func(r *run.Run) **time.Time { return &r.StartedAt }, binding.InData, "When the latest attempt "+
		"began; null before the first one."),
	binding.Instant("ended_at", func(r *run.Run) **time.Time { return &r.EndedAt }, binding.InData, "When the latest attempt ended; "+
		"null while it is in progress."),
	binding.Instant("next_attempt_at", func(r *run.Run) **time.Time { return &r.NextAttemptAt }, binding.InData,
		"When a retrying run is attempted next; null in all other states, and while it waits for its host."),
	binding.Text("waits_for", func(r *run.Run) *string { return &r.WaitsFor }, binding.InData, "The host that a retrying run waits "+
		"for, because its circuit is open; null if it waits for none.", binding.EmptyIsNull),
	binding.Instant("probe_at", func(r *run.Run) **time.Time { return &r.ProbeAt }, binding.InData, "When the next of the runs that "+
		"wait for the host goes, as a probe; null without such a wait, and once the host responds again."),
	binding.Text("waits_for_endpoint", func(r *run.Run) *string { return &r.WaitsForEndpoint }, binding.InData,
		"The endpoint that a queued run waits for, because another run of the job is under way there; null if it waits for none.",
		binding.EmptyIsNull),
	binding.Text("parent", func(r *run.Run) *string { return &r.Parent }, binding.InData, "Id of the broadcast that a shard is part "+
		"of; null for other runs.", binding.EmptyIsNull),
	binding.Block("shard", binding.Nested(func(r *run.Run) **run.Shard { return &r.Shard }, shardRows), binding.InData,
		"Which part of a broadcast the run is; null for runs that are no shard."),
	binding.Block("callback", binding.Nested(func(r *run.Run) **run.CallbackState { return &r.Callback }, callbackStateRows),
		binding.InData, "What is known of a run in state `waiting_callback`; null in all other states."),
	binding.Whole("revision", func(r *run.Run) *int64 { return &r.Revision }, binding.InData, "Revision of the job when the run was "+
		"claimed."),
	binding.Text("event_id", func(r *run.Run) *string { return &r.EventID }, binding.InData, "The `webhook-id` that the receiver "+
		"gets, the same for every attempt."),
	binding.Whole("attempt", func(r *run.Run) *int { return &r.Attempt }, binding.InData, "Number of the latest attempt, from 1; 0 "+
		"while no node has claimed the run."),
	binding.Whole("http_status", func(r *run.Run) *int { return &r.HTTPStatus }, binding.InData, "Status of the response; null "+
		"without a response.", binding.EmptyIsNull),
	binding.Text("class", func(r *run.Run) *run.Class { return &r.Class }, binding.InData, "How the latest attempt failed, such as "+
		"`timeout` or `http_5xx`; null if it did not fail.", binding.EmptyIsNull),
	binding.Text("error", func(r *run.Run) *string { return &r.Error }, binding.InData, "The failure in words; null if there was none.",
		binding.EmptyIsNull),
}

func validateRuns(diags *diag.Diagnostics, config binding.Values) {
	var e binding.Expander
	query := expandRunQuery(&e, config)
	var problems input.Problems
	input.CheckName(&problems, "/app", query.App)
	if query.Job != "" {
		input.CheckName(&problems, "/job", query.Job)
	}
	if query.Trigger != "" {
		input.CheckName(&problems, "/trigger", query.Trigger)
	}
	reportProblems(diags, e.ProblemsWith(problems.Err()))
}

// readQuery returns the reading of an app's objects that match a query.
func readQuery[T any](what string, rows *binding.Rows, expand func(*binding.Expander, binding.Values) dispatcher.RunQuery,
	list func(*client.Client, context.Context, dispatcher.RunQuery) (client.List[T], error)) reading {
	return func(ctx context.Context, c *connection, diags *diag.Diagnostics, config binding.Values) binding.Values {
		var e binding.Expander
		query := expand(&e, config)
		// Values that were unknown have not been checked.
		if reportProblems(diags, e.Problems); diags.HasError() {
			return config
		}
		found, err := list(c.Client, ctx, query)
		if err != nil {
			c.report(diags, fmt.Sprintf("list the %s of app %q", what, query.App), err)
			return config
		}
		maps.Copy(config, rows.Shown(diags, &found))
		return config
	}
}

func expandRunQuery(e *binding.Expander, m binding.Values) dispatcher.RunQuery {
	query := expandQuery(e, m)
	query.State, query.Parent = run.State(e.String("/state", m.Text("state"))), e.String("/parent", m.Text("parent"))
	return query
}

// expandQuery returns the query of a data source. It requests one page of the limit's size.
func expandQuery(e *binding.Expander, m binding.Values) dispatcher.RunQuery {
	query := dispatcher.RunQuery{
		App: e.String("/app", m.Text("app")), Job: e.String("/job", m.Text("job")), Trigger: e.String("/trigger", m.Text("trigger")),
	}
	if from := e.Instant("/from", m.Text("from")); from != nil {
		query.From = *from
	}
	if to := e.Instant("/to", m.Text("to")); to != nil {
		query.To = *to
	}
	bounds := fmt.Sprintf("give one from 1 to %d", maxLimit)
	before := len(e.Problems)
	query.Page.Limit = e.Whole("/limit", m.Number("limit"), defaultLimit, input.CodePageLimit, bounds)
	if limit := query.Page.Limit; len(e.Problems) == before && (limit < 1 || limit > maxLimit) {
		e.Problems.Add("/limit", input.CodePageLimit, "limit %d is out of range; %s", limit, bounds)
	}
	return query
}

// misfiresSource is carillon_misfires: the missed fires of an app.
var misfiresSource = dataSource{
	name: "misfires",
	read: readQuery("misfires", misfiresRows, func(e *binding.Expander, v binding.Values) dispatcher.RunQuery {
		query := expandQuery(e, v)
		input.CheckName(&e.Problems, "/app", query.App)
		return query
	}, (*client.Client).Misfires),
	text: "The missed fires of an app, with the latest first: how many, when, and what was decided about them.",
	attributes: func() map[string]schema.Attribute {
		attributes := queryAttributes("misfires", "misfires")
		maps.Copy(attributes, misfiresRows.DataAttributes())
		return attributes
	},
}

var misfiresRows = binding.Of(binding.Fresh[client.List[dispatcher.Misfire]],
	binding.Blocks("misfires", binding.Nested(func(l *client.List[dispatcher.Misfire]) *[]dispatcher.Misfire { return &l.Items },
		misfireRows), binding.InData, "The misfires, with the latest first.", binding.AlwaysThere),
)

var misfireRows = binding.Of(binding.Fresh[dispatcher.Misfire],
	binding.Text("job", func(m *dispatcher.Misfire) *string { return &m.Job }, binding.InData, "Name of the job."),
	binding.Text("trigger", func(m *dispatcher.Misfire) *string { return &m.Trigger }, binding.InData, "Name of the trigger."),
	binding.Instant("from", func(m *dispatcher.Misfire) **time.Time { return new(&m.From) }, binding.InData, "The first missed fire."),
	binding.Instant("to", func(m *dispatcher.Misfire) **time.Time { return new(&m.To) }, binding.InData, "The last missed fire."),
	binding.Whole("count", func(m *dispatcher.Misfire) *int { return &m.Count }, binding.InData, "How many fires were missed."),
	binding.Text("decision", func(m *dispatcher.Misfire) *dispatcher.Decision { return &m.Decision }, binding.InData,
		"`fire_once` (one run stands for all of them) or `skip` (none of them runs)."),
	binding.Text("reason", func(m *dispatcher.Misfire) *string { return &m.Reason }, binding.InData, "Why it was decided so."),
	binding.Text("run", func(m *dispatcher.Misfire) *string { return &m.Run }, binding.InData, "Id of the run that stands for them; "+
		"null if there is none.", binding.EmptyIsNull),
	binding.Instant("decided_at", func(m *dispatcher.Misfire) **time.Time { return new(&m.DecidedAt) }, binding.InData,
		"When it was decided."),
)

// runSource is carillon_run: one run with its attempts.
var runSource = dataSource{
	name: "run", read: readRun,
	text: "One run of a job with its attempts: their responses, and how long each phase took.",
	attributes: func() map[string]schema.Attribute {
		attributes := singleRunRows.DataAttributes()
		attributes["id"] = schema.StringAttribute{Required: true, MarkdownDescription: "Id of the run."}
		return attributes
	},
}

var singleRunRows = binding.Of(binding.Fresh[run.Run], runRows,
	binding.Text("app", func(r *run.Run) *string { return &r.App }, binding.InData, "Name of the app."),
	jsonTextRow("payload", func(r *run.Run) *json.RawMessage { return &r.Payload }, "What the run was given in place of the payload "+
		"of its job, as JSON; null if it was given none."),
	binding.Block("cause", binding.Nested(func(r *run.Run) **run.Cause { return &r.Cause }, causeRows), binding.InData,
		"Why the run exists; null where its `kind` says all."),
	binding.Block("shards", binding.Nested(func(r *run.Run) **run.ShardCounts { return &r.Shards }, shardCountsRows), binding.InData,
		"How many shards the broadcast has, by their state; null for runs without shards."),
	binding.Blocks("attempts", binding.Nested(func(r *run.Run) *[]run.Attempt { return &r.Attempts }, attemptRows), binding.InData,
		"The attempts of the run that have ended, the first one first.", binding.AlwaysThere),
)

// jsonTextRow is JSON as it is written; null if it is empty.
func jsonTextRow[P any](name string, field func(P) *json.RawMessage, text string) *binding.Row {
	return binding.Shown(name, func(of P) string { return string(*field(of)) }, binding.InData, text, binding.EmptyIsNull)
}

var attemptRows = binding.Of(binding.Fresh[run.Attempt],
	binding.Whole("attempt", func(a *run.Attempt) *int { return &a.Attempt }, binding.InData, "Number of the attempt, from 1."),
	binding.Shown("node", func(a *run.Attempt) string { return a.Node.String() }, binding.InData, "Id of the node that made the attempt."),
	binding.Text("state", func(a *run.Attempt) *run.State { return &a.State }, binding.InData, "How the attempt ended."),
	binding.Instant("started_at", func(a *run.Attempt) **time.Time { return new(&a.StartedAt) }, binding.InData, "When the attempt began."),
	binding.Instant("ended_at", func(a *run.Attempt) **time.Time { return new(&a.EndedAt) }, binding.InData, "When the attempt ended."),
	binding.Whole("http_status", func(a *run.Attempt) *int { return &a.HTTPStatus }, binding.InData, "Status of the response; null "+
		"without a response.", binding.EmptyIsNull),
	binding.Text("class", func(a *run.Attempt) *run.Class { return &a.Class }, binding.InData, "How the attempt failed, such as "+
		"`timeout` or `http_5xx`; null if it did not fail.", binding.EmptyIsNull),
	binding.Text("error", func(a *run.Attempt) *string { return &a.Error }, binding.InData, "The failure in words; null if there was "+
		"none.", binding.EmptyIsNull),
	binding.Block("response", binding.Nested(func(a *run.Attempt) **run.Response { return &a.Response }, responseRows), binding.InData,
		"What Carillon keeps of the response; null if it keeps nothing."),
)

var responseRows = binding.Of(binding.Fresh[run.Response],
	binding.Text("endpoint", func(r *run.Response) *string { return &r.Endpoint }, binding.InData, "Id of the endpoint of a group "+
		"that the attempt went to; null for targets without a group, and if no endpoint got it.", binding.EmptyIsNull),
	binding.Text("request_id", func(r *run.Response) *string { return &r.RequestID }, binding.InData, "The target's own id of the "+
		"request; null if the response names none.", binding.EmptyIsNull),
	binding.Text("message_id", func(r *run.Response) *string { return &r.MessageID }, binding.InData, "The id that a queue or topic "+
		"gave the message; null for other targets.", binding.EmptyIsNull),
	binding.Map("headers", func(r *run.Response) *map[string]string { return &r.Headers }, binding.InData, "Some of its headers, "+
		"with names in lower case."),
	binding.Text("body", func(r *run.Response) *string { return &r.Body }, binding.InData, "The first 64 KiB of the body."),
	binding.Bool("body_truncated", func(r *run.Response) *bool { return &r.BodyTruncated }, binding.InData, "Whether the body was "+
		"longer than that."),
	binding.Text("function_error", func(r *run.Response) *string { return &r.FunctionError }, binding.InData,
		"`Handled` or `Unhandled` if a Lambda function failed; otherwise null.", binding.EmptyIsNull),
	binding.Text("executed_version", func(r *run.Response) *string { return &r.ExecutedVersion }, binding.InData,
		"Version of the Lambda function that an alias led to; null for webhooks.", binding.EmptyIsNull),
	binding.Text("log_tail", func(r *run.Response) *string { return &r.LogTail }, binding.InData, "The end of the Lambda function's "+
		"log, without text that looks like a secret; null for webhooks.", binding.EmptyIsNull),
	jsonTextRow("state", func(r *run.Response) *json.RawMessage { return &r.State }, "JSON that the target returned as the state of "+
		"the job; null if it returned none."),
	binding.Text("state_problem", func(r *run.Response) *string { return &r.StateProblem }, binding.InData, "Why a state that the "+
		"target returned was not stored; null if it was, or if it returned none.", binding.EmptyIsNull),
	binding.Text("callback_result", func(r *run.Response) *string { return &r.CallbackResult }, binding.InData,
		"The message with which the target completed the run by its callback; null if there was none.", binding.EmptyIsNull),
	binding.Part("phases", binding.Nested(func(r *run.Response) *run.Phases { return &r.Phases }, phasesRows), binding.InData,
		"How long each phase of the request took; null for a phase that did not happen, such as connecting when a connection is reused."),
)

var phasesRows = binding.Of(binding.Fresh[run.Phases],
	phaseRow("dns", func(p *run.Phases) input.Duration { return p.DNS }, "Resolving the host name."),
	phaseRow("connect", func(p *run.Phases) input.Duration { return p.Connect }, "Connecting."),
	phaseRow("tls", func(p *run.Phases) input.Duration { return p.TLS }, "The TLS handshake."),
	phaseRow("first_byte", func(p *run.Phases) input.Duration { return p.FirstByte }, "From the start of the attempt to the first "+
		"byte of the response."),
	phaseRow("last_byte", func(p *run.Phases) input.Duration { return p.LastByte }, "From the start of the attempt to the last byte "+
		"of the response."),
)

// phaseRow is the duration of a phase; null if it did not happen.
func phaseRow(name string, of func(*run.Phases) input.Duration, text string) *binding.Row {
	return binding.Shown(name, func(p *run.Phases) string {
		if d := of(p); d != 0 {
			return d.String()
		}
		return ""
	}, binding.InData, text, binding.EmptyIsNull)
}

var causeRows = binding.Of(binding.Fresh[run.Cause],
	binding.Text("run", func(c *run.Cause) *string { return &c.Run }, binding.InData, "Id of the run that this one follows; null if "+
		"it follows none.", binding.EmptyIsNull),
	binding.Text("on", func(c *run.Cause) *string { return &c.On }, binding.InData, "What happened to that run, such as `failure`; "+
		"null if it follows none.", binding.EmptyIsNull),
	binding.Text("backfill", func(c *run.Cause) *string { return &c.Backfill }, binding.InData, "Id of the backfill that the run is "+
		"part of; null for other runs.", binding.EmptyIsNull),
	binding.Instant("from", func(c *run.Cause) **time.Time { return rangeOf(c, func(r *run.Range) *time.Time { return &r.From }) },
		binding.InData, "First instant of the range of the backfill; null for other runs."),
	binding.Instant("to", func(c *run.Cause) **time.Time { return rangeOf(c, func(r *run.Range) *time.Time { return &r.To }) },
		binding.InData, "Last instant of the range of the backfill; null for other runs."),
	binding.Text("alert", func(c *run.Cause) *string { return &c.Alert }, binding.InData, "The alert of which the run delivers a "+
		"notification; null for other runs.", binding.EmptyIsNull),
)

// rangeOf returns an end of a backfill's range, or nil.
func rangeOf(c *run.Cause, end func(*run.Range) *time.Time) **time.Time {
	var at *time.Time
	if c.Range != nil {
		at = end(c.Range)
	}
	return &at
}

// shardRows are a run's part of a broadcast.
var shardRows = binding.Of(binding.Fresh[run.Shard],
	binding.Whole("index", func(s *run.Shard) *int { return &s.Index }, binding.InData, "From 0 to `total` - 1: the place of its "+
		"endpoint in the order of ids when the broadcast began."),
	binding.Whole("total", func(s *run.Shard) *int { return &s.Total }, binding.InData, "How many shards the broadcast has."),
	binding.Text("endpoint", func(s *run.Shard) *string { return &s.Endpoint }, binding.InData, "Id of the endpoint for which the "+
		"shard was made. If that endpoint is gone, another one gets the shard; `response.endpoint` of each attempt says which.",
		binding.EmptyIsNull),
)

var shardCountsRows = binding.Of(binding.Fresh[run.ShardCounts],
	binding.Whole("total", func(c *run.ShardCounts) *int { return &c.Total }, binding.InData, "All shards."),
	binding.Whole("succeeded", func(c *run.ShardCounts) *int { return &c.Succeeded }, binding.InData, "Shards that succeeded."),
	binding.Whole("superseded", func(c *run.ShardCounts) *int { return &c.Superseded }, binding.InData, "Shards that their endpoints "+
		"refused as stale."),
	binding.Whole("failed", func(c *run.ShardCounts) *int { return &c.Failed }, binding.InData, "Shards that ended in another way."),
	binding.Whole("live", func(c *run.ShardCounts) *int { return &c.Live }, binding.InData, "Shards that have not ended."),
)

// callbackStateRows are the state of a run that waits for its target's callback.
var callbackStateRows = binding.Of(binding.Fresh[run.CallbackState],
	binding.Text("endpoint", func(c *run.CallbackState) *string { return &c.Endpoint }, binding.InData, "Id of the endpoint of a "+
		"group that accepted the attempt; null for targets without a group. Lists of runs do not have it.", binding.EmptyIsNull),
	binding.Instant("deadline", func(c *run.CallbackState) **time.Time { return new(&c.Deadline) }, binding.InData,
		"When the attempt times out without a callback. A heartbeat moves it."),
	binding.Instant("heartbeat_at", func(c *run.CallbackState) **time.Time { return &c.HeartbeatAt }, binding.InData,
		"When the latest heartbeat came; null before the first one."),
	binding.Text("progress", func(c *run.CallbackState) *string { return &c.Progress }, binding.InData, "The text of the latest "+
		"heartbeat that had one; null if none did.", binding.EmptyIsNull),
	binding.Value("percent", types.Int64Type, func(c *run.CallbackState) attr.Value {
		if c.Percent == nil {
			return types.Int64Null()
		}
		return types.Int64Value(int64(*c.Percent)) // 0 differs from nil
	}, binding.InData, "The progress from 0 to 100 that the latest heartbeat with a number reported; null if none did."),
)

func readRun(ctx context.Context, c *connection, diags *diag.Diagnostics, m binding.Values) binding.Values {
	id := m.Text("id").ValueString()
	found, err := c.Run(ctx, id)
	if err != nil {
		c.report(diags, fmt.Sprintf("read run %q", id), err)
		return m
	}
	return singleRunRows.Shown(diags, &found)
}
