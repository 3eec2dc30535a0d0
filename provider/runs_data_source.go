package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
)

var (
	_ datasource.DataSourceWithConfigure      = (*runsDataSource)(nil)
	_ datasource.DataSourceWithValidateConfig = (*runsDataSource)(nil)
)

type runsDataSource struct{ conn *connection }

func newRunsDataSource() datasource.DataSource { return &runsDataSource{} }

type runsModel struct {
	App     types.String  `tfsdk:"app"`
	Job     types.String  `tfsdk:"job"`
	Trigger types.String  `tfsdk:"trigger"`
	State   types.String  `tfsdk:"state"`
	From    instantString `tfsdk:"from"`
	To      instantString `tfsdk:"to"`
	Limit   types.Number  `tfsdk:"limit"`
	Runs    []runModel    `tfsdk:"runs"`
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
	Revision    types.Int64       `tfsdk:"revision"`
	EventID     types.String      `tfsdk:"event_id"`
	Attempt     types.Int64       `tfsdk:"attempt"`
	HTTPStatus  types.Int64       `tfsdk:"http_status"`
	Class       types.String      `tfsdk:"class"`
	Error       types.String      `tfsdk:"error"`
}

func (d *runsDataSource) Metadata(_ context.Context, req datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_runs"
}

const (
	defaultLimit = 100
	maxLimit     = 1000
)

func (d *runsDataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	states := runStates()
	resp.Schema = schema.Schema{
		MarkdownDescription: "The runs of an app, latest scheduled first.",
		Attributes: map[string]schema.Attribute{
			"app": schema.StringAttribute{Required: true, MarkdownDescription: "Name of the app."},
			"job": schema.StringAttribute{Optional: true, MarkdownDescription: "Only runs of the job of this name. Default: all."},
			"trigger": schema.StringAttribute{
				Optional:            true,
				Validators:          []validator.String{stringvalidator.AlsoRequires(path.MatchRoot("job"))},
				MarkdownDescription: "Only runs of the trigger of this name; needs `job`. Default: all.",
			},
			"state": schema.StringAttribute{
				Optional:            true,
				Validators:          []validator.String{stringvalidator.OneOf(states...)},
				MarkdownDescription: "Only runs in this state: " + either(states) + ". Default: all.",
			},
			"from": schema.StringAttribute{
				Optional: true, CustomType: semanticType[instants]{},
				MarkdownDescription: "Only runs scheduled at or after this instant, in RFC 3339 with a zone. Default: no bound.",
			},
			"to": schema.StringAttribute{
				Optional: true, CustomType: semanticType[instants]{},
				MarkdownDescription: "Only runs scheduled at or before this instant, in RFC 3339 with a zone. Default: no bound.",
			},
			"limit": schema.NumberAttribute{
				Optional:            true,
				MarkdownDescription: fmt.Sprintf("How many runs at most, from 1 to %d. Default: `%d`.", maxLimit, defaultLimit),
			},
			"runs": schema.ListNestedAttribute{
				Computed:            true,
				MarkdownDescription: "The runs, latest scheduled first.",
				NestedObject:        schema.NestedAttributeObject{Attributes: runAttributes(states)},
			},
		},
	}
}

// runStates are the states of runs as texts.
func runStates() []string {
	states := make([]string, len(dispatcher.RunStates))
	for i, state := range dispatcher.RunStates {
		states[i] = string(state)
	}
	return states
}

func runAttributes(states []string) map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"id":              computedString("Id of the run."),
		"job":             computedString("Name of the job."),
		"trigger":         computedString("Name of the trigger; empty for a run that was asked for by hand."),
		"kind":            computedString("What asked for the run: `schedule`, `manual` or `catch_up` (it stands for missed fires)."),
		"state":           computedString(either(states) + "."),
		"scheduled_at":    computedTime("The instant that the run executes."),
		"started_at":      computedTime("When the latest attempt began; null until it does."),
		"ended_at":        computedTime("When the latest attempt ended; null until it does."),
		"next_attempt_at": computedTime("When a retrying run is attempted next; null in every other state."),
		"revision":        computedInt("Revision of the job when the run was claimed."),
		"event_id":        computedString("What the receiver gets as `webhook-id`, the same on every attempt."),
		"attempt":         computedInt("Number of the latest attempt, from 1; 0 while no node has taken the run."),
		"http_status":     computedInt("Status of the response; null if none came."),
		"class":           computedString("How the latest attempt failed, such as `timeout` or `http_5xx`; null if it did not."),
		"error":           computedString("The failure in words; null if there is none."),
	}
}

func (d *runsDataSource) Configure(_ context.Context, req datasource.ConfigureRequest, _ *datasource.ConfigureResponse) {
	d.conn = configured(req.ProviderData)
}

func (d *runsDataSource) ValidateConfig(ctx context.Context, req datasource.ValidateConfigRequest, resp *datasource.ValidateConfigResponse) {
	var config runsModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	if resp.Diagnostics.HasError() {
		return
	}
	var e expander
	query := expandRunQuery(&e, config)
	var problems dispatcher.Problems
	for _, name := range []struct{ pointer, text string }{{"/app", query.App}, {"/job", query.Job}, {"/trigger", query.Trigger}} {
		if name.text != "" || name.pointer == "/app" {
			dispatcher.CheckName(&problems, name.pointer, name.text)
		}
	}
	reportProblems(&resp.Diagnostics, e.problemsWith(problems.Err()))
}

func (d *runsDataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m runsModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() || !d.conn.ready(&resp.Diagnostics) {
		return
	}
	var e expander
	query := expandRunQuery(&e, m)
	reportProblems(&resp.Diagnostics, e.problems) // of what was unknown when the configuration was judged
	if resp.Diagnostics.HasError() {
		return
	}
	list, err := d.conn.Runs(ctx, query)
	if err != nil {
		d.conn.report(&resp.Diagnostics, fmt.Sprintf("list the runs of app %q", m.App.ValueString()), err)
		return
	}
	m.Runs = []runModel{}
	for _, run := range list.Items {
		m.Runs = append(m.Runs, flattenRun(run))
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

// expandRunQuery returns the query that a model describes: one page, for limit is no more.
func expandRunQuery(e *expander, m runsModel) dispatcher.RunQuery {
	query := dispatcher.RunQuery{
		App:     e.string("/app", m.App),
		Job:     e.string("/job", m.Job),
		Trigger: e.string("/trigger", m.Trigger),
		State:   dispatcher.RunState(e.string("/state", m.State)),
		Page:    dispatcher.Page{Limit: defaultLimit},
	}
	if from := e.instant("/from", m.From); from != nil {
		query.From = *from
	}
	if to := e.instant("/to", m.To); to != nil {
		query.To = *to
	}
	if !m.Limit.IsNull() && !m.Limit.IsUnknown() {
		bounds := fmt.Sprintf("give one from 1 to %d", maxLimit)
		before := len(e.problems)
		query.Page.Limit = e.whole("/limit", m.Limit, dispatcher.CodePageLimit, bounds)
		if limit := query.Page.Limit; len(e.problems) == before && (limit < 1 || limit > maxLimit) {
			e.problems.Add("/limit", dispatcher.CodePageLimit, "limit %d is out of range; %s", limit, bounds)
		}
	}
	return query
}

func flattenRun(run dispatcher.Run) runModel {
	m := runModel{
		ID:          types.StringValue(run.ID),
		Job:         types.StringValue(run.Job),
		Trigger:     types.StringValue(run.Trigger),
		Kind:        types.StringValue(string(run.Kind)),
		State:       types.StringValue(string(run.State)),
		ScheduledAt: timetypes.NewRFC3339TimeValue(run.ScheduledAt),
		StartedAt:   timetypes.NewRFC3339TimePointerValue(run.StartedAt),
		EndedAt:     timetypes.NewRFC3339TimePointerValue(run.EndedAt),
		NextAttempt: timetypes.NewRFC3339TimePointerValue(run.NextAttemptAt),
		Revision:    types.Int64Value(run.Revision),
		EventID:     types.StringValue(run.EventID),
		Attempt:     types.Int64Value(int64(run.Attempt)),
	}
	if run.HTTPStatus != 0 {
		m.HTTPStatus = types.Int64Value(int64(run.HTTPStatus))
	}
	if run.Class != "" {
		m.Class = types.StringValue(string(run.Class))
	}
	if run.Error != "" {
		m.Error = types.StringValue(run.Error)
	}
	return m
}
