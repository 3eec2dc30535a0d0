package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// newRunsDataSource returns carillon_runs: the runs of an app that match a query.
func newRunsDataSource() datasource.DataSource {
	return &dataSource[runsModel]{name: "runs", schema: runsDataSchema, read: readRuns, validate: validateRuns}
}

type runsModel struct {
	queryModel
	State  types.String `tfsdk:"state"`
	Parent types.String `tfsdk:"parent"`
	Runs   []runModel   `tfsdk:"runs"`
}

// queryModel says which runs or misfires of an app are read.
type queryModel struct {
	App     types.String  `tfsdk:"app"`
	Job     types.String  `tfsdk:"job"`
	Trigger types.String  `tfsdk:"trigger"`
	From    instantString `tfsdk:"from"`
	To      instantString `tfsdk:"to"`
	Limit   types.Number  `tfsdk:"limit"`
}

type runModel struct {
	ID          types.String      `tfsdk:"id"`
	Job         types.String      `tfsdk:"job"`
	Trigger     types.String      `tfsdk:"trigger"`
	Kind        types.String      `tfsdk:"kind"`
	State       types.String      `tfsdk:"state"`
	ScheduledAt timetypes.RFC3339 `tfsdk:"scheduled_at"`
	StartedAt   timetypes.RFC3339 `tfsdk:"started_at"`
	EndedAt     timetypes.RFC3339 `tfsdk:"ended_at"`
	NextAttempt timetypes.RFC3339 `tfsdk:"next_attempt_at"`
	WaitsFor    types.String      `tfsdk:"waits_for"`
	ProbeAt     timetypes.RFC3339 `tfsdk:"probe_at"`
	Revision    types.Int64       `tfsdk:"revision"`
	EventID     types.String      `tfsdk:"event_id"`
	Attempt     types.Int64       `tfsdk:"attempt"`
	HTTPStatus  types.Int64       `tfsdk:"http_status"`
	Class       types.String      `tfsdk:"class"`
	Error       types.String      `tfsdk:"error"`

	WaitsForEndpoint types.String `tfsdk:"waits_for_endpoint"`

	Parent   types.String      `tfsdk:"parent"`
	Shard    *shardModel       `tfsdk:"shard"`
	Callback *runCallbackModel `tfsdk:"callback"`
}

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
			Optional: true, CustomType: semanticType[instants]{},
			MarkdownDescription: "Only " + timed + " at or after this instant, in RFC 3339 with a time zone. Default: no limit.",
		},
		"to": schema.StringAttribute{
			Optional: true, CustomType: semanticType[instants]{},
			MarkdownDescription: "Only " + timed + " at or before this instant, in RFC 3339 with a time zone. Default: no limit.",
		},
		"limit": schema.NumberAttribute{
			Optional:            true,
			MarkdownDescription: fmt.Sprintf("How many %s to return at most, from 1 to %d. Default: `%d`.", what, maxLimit, defaultLimit),
		},
	}
}

func runsDataSchema() schema.Schema {
	states := runStates()
	attributes := queryAttributes("runs", "runs scheduled")
	attributes["state"] = schema.StringAttribute{
		Optional:            true,
		Validators:          []validator.String{stringvalidator.OneOf(states...)},
		MarkdownDescription: "Only runs in this state: " + either(states) + ". Default: all.",
	}
	attributes["parent"] = schema.StringAttribute{
		Optional: true,
		MarkdownDescription: "Only the shards of the broadcast with this run id, the highest index first. " +
			"Default: all runs except shards.",
	}
	attributes["runs"] = schema.ListNestedAttribute{
		Computed:            true,
		MarkdownDescription: "The runs, with the latest scheduled time first.",
		NestedObject:        schema.NestedAttributeObject{Attributes: runAttributes(states)},
	}
	return schema.Schema{MarkdownDescription: "The runs of an app, with the latest scheduled time first.", Attributes: attributes}
}

func runStates() []string {
	states := make([]string, len(run.States))
	for i, state := range run.States {
		states[i] = string(state)
	}
	return states
}

func runAttributes(states []string) map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"id":      computedString("Id of the run."),
		"job":     computedString("Name of the job."),
		"trigger": computedString("Name of the trigger; empty for a run that belongs to none, such as a manual one."),
		"kind": computedString("Why the run exists: `schedule`, `manual`, `catch_up` (it stands for misfires), `chain` (the end of " +
			"another run asked for it), `backfill` (part of a backfill), `alert` (delivers a notification) or `follow` (delivers the " +
			"end of a run)."),
		"state":           computedString("State of the run: " + either(states) + "."),
		"scheduled_at":    computedTime("Scheduled time of the fire that the run executes."),
		"started_at":      computedTime("When the latest attempt began; null before the first one."),
		"ended_at":        computedTime("When the latest attempt ended; null while it is in progress."),
		"next_attempt_at": computedTime("When a retrying run is attempted next; null in all other states, and while it waits for its host."),
		"waits_for":       computedString("The host that a retrying run waits for, because its circuit is open; null if it waits for none."),
		"probe_at": computedTime("When the next of the runs that wait for the host goes, as a probe; " +
			"null without such a wait, and once the host responds again."),
		"waits_for_endpoint": computedString("The endpoint that a queued run waits for, because another run of the job is under way " +
			"there; null if it waits for none."),
		"parent":      computedString("Id of the broadcast that a shard is part of; null for other runs."),
		"shard":       shardAttribute(),
		"callback":    runCallbackAttribute(),
		"revision":    computedInt("Revision of the job when the run was claimed."),
		"event_id":    computedString("The `webhook-id` that the receiver gets, the same for every attempt."),
		"attempt":     computedInt("Number of the latest attempt, from 1; 0 while no node has claimed the run."),
		"http_status": computedInt("Status of the response; null without a response."),
		"class":       computedString("How the latest attempt failed, such as `timeout` or `http_5xx`; null if it did not fail."),
		"error":       computedString("The failure in words; null if there was none."),
	}
}

func validateRuns(diags *diag.Diagnostics, config runsModel) {
	var e expander
	query := expandRunQuery(&e, config)
	var problems input.Problems
	input.CheckName(&problems, "/app", query.App)
	if query.Job != "" {
		input.CheckName(&problems, "/job", query.Job)
	}
	if query.Trigger != "" {
		input.CheckName(&problems, "/trigger", query.Trigger)
	}
	reportProblems(diags, e.problemsWith(problems.Err()))
}

func readRuns(ctx context.Context, c *connection, diags *diag.Diagnostics, m runsModel) runsModel {
	var e expander
	query := expandRunQuery(&e, m)
	// ValidateConfig could not check values that were unknown then.
	if reportProblems(diags, e.problems); diags.HasError() {
		return m
	}
	list, err := c.Runs(ctx, query)
	if err != nil {
		c.report(diags, fmt.Sprintf("list the runs of app %q", m.App.ValueString()), err)
		return m
	}
	m.Runs = []runModel{}
	for _, run := range list.Items {
		m.Runs = append(m.Runs, flattenRun(run))
	}
	return m
}

func expandRunQuery(e *expander, m runsModel) dispatcher.RunQuery {
	query := expandQuery(e, m.queryModel)
	query.State, query.Parent = run.State(e.string("/state", m.State)), e.string("/parent", m.Parent)
	return query
}

// expandQuery returns the query that a model describes. It asks for one page, which holds as many as the limit allows.
func expandQuery(e *expander, m queryModel) dispatcher.RunQuery {
	query := dispatcher.RunQuery{
		App: e.string("/app", m.App), Job: e.string("/job", m.Job), Trigger: e.string("/trigger", m.Trigger),
	}
	if from := e.instant("/from", m.From); from != nil {
		query.From = *from
	}
	if to := e.instant("/to", m.To); to != nil {
		query.To = *to
	}
	bounds := fmt.Sprintf("give one from 1 to %d", maxLimit)
	before := len(e.problems)
	query.Page.Limit = e.whole("/limit", m.Limit, defaultLimit, input.CodePageLimit, bounds)
	if limit := query.Page.Limit; len(e.problems) == before && (limit < 1 || limit > maxLimit) {
		e.problems.Add("/limit", input.CodePageLimit, "limit %d is out of range; %s", limit, bounds)
	}
	return query
}

func flattenRun(run run.Run) runModel {
	return runModel{
		ID:          types.StringValue(run.ID),
		Job:         types.StringValue(run.Job),
		Trigger:     types.StringValue(run.Trigger),
		Kind:        types.StringValue(string(run.Kind)),
		State:       types.StringValue(string(run.State)),
		ScheduledAt: timetypes.NewRFC3339TimeValue(run.ScheduledAt),
		StartedAt:   timetypes.NewRFC3339TimePointerValue(run.StartedAt),
		EndedAt:     timetypes.NewRFC3339TimePointerValue(run.EndedAt),
		NextAttempt: timetypes.NewRFC3339TimePointerValue(run.NextAttemptAt),
		WaitsFor:    flattenOptional(run.WaitsFor),
		ProbeAt:     timetypes.NewRFC3339TimePointerValue(run.ProbeAt),
		Revision:    types.Int64Value(run.Revision),
		EventID:     types.StringValue(run.EventID),
		Attempt:     types.Int64Value(int64(run.Attempt)),
		HTTPStatus:  flattenStatus(run.HTTPStatus),
		Class:       flattenOptional(run.Class),
		Error:       flattenOptional(run.Error),

		WaitsForEndpoint: flattenOptional(run.WaitsForEndpoint),

		Parent:   flattenOptional(run.Parent),
		Shard:    flattenShard(run.Shard),
		Callback: flattenCallbackState(run.Callback),
	}
}

// flattenStatus turns 0, for an attempt without a response, into null.
func flattenStatus(status int) types.Int64 {
	if status == 0 {
		return types.Int64Null()
	}
	return types.Int64Value(int64(status))
}

func computedBool(description string) schema.Attribute {
	return schema.BoolAttribute{Computed: true, MarkdownDescription: description}
}
