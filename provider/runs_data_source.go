package provider

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/provider/binding"
)

// The numbers of runs that one read returns. A page of the API holds at most maxLimit.
const (
	defaultLimit = 100
	maxLimit     = 1000
)

// queryAttributes are those that say which runs or misfires of an app are read. timed is what is in the time that they give.
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
	name: "runs", text: "The runs of an app, with the latest scheduled time first.", read: readRuns, validate: validateRuns,
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

func readRuns(ctx context.Context, c *connection, diags *diag.Diagnostics, m binding.Values) binding.Values {
	var e binding.Expander
	query := expandRunQuery(&e, m)
	// ValidateConfig could not check values that were unknown then.
	if reportProblems(diags, e.Problems); diags.HasError() {
		return m
	}
	list, err := c.Runs(ctx, query)
	if err != nil {
		c.report(diags, fmt.Sprintf("list the runs of app %q", query.App), err)
		return m
	}
	maps.Copy(m, runsRows.Shown(diags, &list))
	return m
}

func expandRunQuery(e *binding.Expander, m binding.Values) dispatcher.RunQuery {
	query := expandQuery(e, m)
	query.State, query.Parent = run.State(e.String("/state", m.Text("state"))), e.String("/parent", m.Text("parent"))
	return query
}

// expandQuery returns the query of a data source. It asks for one page, which holds as many as the limit allows.
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

// misfiresSource is carillon_misfires: the fires of an app that were missed.
var misfiresSource = dataSource{
	name: "misfires", read: readMisfires,
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

func readMisfires(ctx context.Context, c *connection, diags *diag.Diagnostics, m binding.Values) binding.Values {
	var e binding.Expander
	query := expandQuery(&e, m)
	input.CheckName(&e.Problems, "/app", query.App)
	if reportProblems(diags, e.Problems); diags.HasError() {
		return m
	}
	list, err := c.Misfires(ctx, query)
	if err != nil {
		c.report(diags, fmt.Sprintf("list the misfires of app %q", query.App), err)
		return m
	}
	maps.Copy(m, misfiresRows.Shown(diags, &list))
	return m
}
