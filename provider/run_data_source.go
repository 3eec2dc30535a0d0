package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// newRunDataSource returns carillon_run: one run with its attempts.
func newRunDataSource() datasource.DataSource {
	return &dataSource[singleRunModel]{name: "run", schema: runDataSchema, read: readRun}
}

type singleRunModel struct {
	App types.String `tfsdk:"app"`
	runModel
	Payload  types.String      `tfsdk:"payload"`
	Cause    *causeModel       `tfsdk:"cause"`
	Shards   *shardCountsModel `tfsdk:"shards"`
	Attempts []attemptModel    `tfsdk:"attempts"`
}

type attemptModel struct {
	Attempt    types.Int64       `tfsdk:"attempt"`
	Node       types.String      `tfsdk:"node"`
	State      types.String      `tfsdk:"state"`
	StartedAt  timetypes.RFC3339 `tfsdk:"started_at"`
	EndedAt    timetypes.RFC3339 `tfsdk:"ended_at"`
	HTTPStatus types.Int64       `tfsdk:"http_status"`
	Class      types.String      `tfsdk:"class"`
	Error      types.String      `tfsdk:"error"`
	Response   *responseModel    `tfsdk:"response"`
}

type responseModel struct {
	Endpoint      types.String      `tfsdk:"endpoint"`
	RequestID     types.String      `tfsdk:"request_id"`
	Headers       map[string]string `tfsdk:"headers"`
	Body          types.String      `tfsdk:"body"`
	BodyTruncated types.Bool        `tfsdk:"body_truncated"`
	Phases        phasesModel       `tfsdk:"phases"`

	MessageID       types.String `tfsdk:"message_id"`
	FunctionError   types.String `tfsdk:"function_error"`
	ExecutedVersion types.String `tfsdk:"executed_version"`
	LogTail         types.String `tfsdk:"log_tail"`
	CallbackResult  types.String `tfsdk:"callback_result"`
	State           types.String `tfsdk:"state"`
	StateProblem    types.String `tfsdk:"state_problem"`
}

type phasesModel struct {
	DNS       types.String `tfsdk:"dns"`
	Connect   types.String `tfsdk:"connect"`
	TLS       types.String `tfsdk:"tls"`
	FirstByte types.String `tfsdk:"first_byte"`
	LastByte  types.String `tfsdk:"last_byte"`
}

func runDataSchema() schema.Schema {
	attributes := runAttributes(runStates())
	attributes["id"] = schema.StringAttribute{Required: true, MarkdownDescription: "Id of the run."}
	attributes["app"] = computedString("Name of the app.")
	attributes["payload"] = computedString("What the run was given in place of the payload of its job, as JSON; null if it was given none.")
	attributes["cause"] = causeAttribute()
	attributes["shards"] = shardCountsAttribute()
	attributes["attempts"] = schema.ListNestedAttribute{
		Computed: true, MarkdownDescription: "The attempts of the run that have ended, the first one first.",
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"attempt":     computedInt("Number of the attempt, from 1."),
			"node":        computedString("Id of the node that made the attempt."),
			"state":       computedString("How the attempt ended."),
			"started_at":  computedTime("When the attempt began."),
			"ended_at":    computedTime("When the attempt ended."),
			"http_status": computedInt("Status of the response; null without a response."),
			"class":       computedString("How the attempt failed, such as `timeout` or `http_5xx`; null if it did not fail."),
			"error":       computedString("The failure in words; null if there was none."),
			"response":    responseAttribute(),
		}},
	}
	return schema.Schema{
		MarkdownDescription: "One run of a job with its attempts: their responses, and how long each phase took.",
		Attributes:          attributes,
	}
}

func responseAttribute() schema.Attribute {
	return schema.SingleNestedAttribute{
		Computed: true, MarkdownDescription: "What Carillon keeps of the response; null if it keeps nothing.",
		Attributes: map[string]schema.Attribute{
			"endpoint": computedString("Id of the endpoint of a group that the attempt went to; null for targets without a group, " +
				"and if no endpoint got it."),
			"request_id": computedString("The target's own id of the request; null if the response names none."),
			"message_id": computedString("The id that a queue or topic gave the message; null for other targets."),
			"headers": schema.MapAttribute{
				Computed: true, ElementType: types.StringType,
				MarkdownDescription: "Some of its headers, with names in lower case.",
			},
			"body": computedString("The first 64 KiB of the body."),
			"body_truncated": schema.BoolAttribute{
				Computed: true, MarkdownDescription: "Whether the body was longer than that.",
			},
			"function_error":   computedString("`Handled` or `Unhandled` if a Lambda function failed; otherwise null."),
			"executed_version": computedString("Version of the Lambda function that an alias led to; null for webhooks."),
			"log_tail": computedString("The end of the Lambda function's log, without text that looks like a secret; null for " +
				"webhooks."),
			"state": computedString("JSON that the target returned as the state of the job; null if it returned none."),
			"state_problem": computedString("Why a state that the target returned was not stored; null if it was, or if it returned " +
				"none."),
			"callback_result": computedString("The message with which the target completed the run by its callback; null if " +
				"there was none."),
			"phases": schema.SingleNestedAttribute{
				Computed: true,
				MarkdownDescription: "How long each phase of the request took; null for a phase that did not happen, such as " +
					"connecting when a connection is reused.",
				Attributes: map[string]schema.Attribute{
					"dns":        computedString("Resolving the host name."),
					"connect":    computedString("Connecting."),
					"tls":        computedString("The TLS handshake."),
					"first_byte": computedString("From the start of the attempt to the first byte of the response."),
					"last_byte":  computedString("From the start of the attempt to the last byte of the response."),
				},
			},
		},
	}
}

func readRun(ctx context.Context, c *connection, diags *diag.Diagnostics, m singleRunModel) singleRunModel {
	run, err := c.Run(ctx, m.ID.ValueString())
	if err != nil {
		c.report(diags, fmt.Sprintf("read run %q", m.ID.ValueString()), err)
		return m
	}
	m = singleRunModel{App: types.StringValue(run.App), runModel: flattenRun(run), Payload: flattenOptional(string(run.Payload)),
		Cause: flattenCause(run.Cause), Shards: flattenShardCounts(run.Shards), Attempts: []attemptModel{}}
	for _, a := range run.Attempts {
		m.Attempts = append(m.Attempts, flattenAttempt(a))
	}
	return m
}

func flattenAttempt(a run.Attempt) attemptModel {
	return attemptModel{
		Attempt:    types.Int64Value(int64(a.Attempt)),
		Node:       types.StringValue(a.Node.String()),
		State:      types.StringValue(string(a.State)),
		StartedAt:  timetypes.NewRFC3339TimeValue(a.StartedAt),
		EndedAt:    timetypes.NewRFC3339TimeValue(a.EndedAt),
		HTTPStatus: flattenStatus(a.HTTPStatus),
		Class:      flattenOptional(a.Class),
		Error:      flattenOptional(a.Error),
		Response:   flattenResponse(a.Response),
	}
}

func flattenResponse(r *run.Response) *responseModel {
	if r == nil {
		return nil
	}
	return &responseModel{
		Endpoint: flattenOptional(r.Endpoint), RequestID: flattenOptional(r.RequestID), Headers: r.Headers,
		Body: types.StringValue(r.Body), BodyTruncated: types.BoolValue(r.BodyTruncated),
		MessageID:     flattenOptional(r.MessageID),
		FunctionError: flattenOptional(r.FunctionError), ExecutedVersion: flattenOptional(r.ExecutedVersion),
		LogTail: flattenOptional(r.LogTail), CallbackResult: flattenOptional(r.CallbackResult),
		State: flattenOptional(string(r.State)), StateProblem: flattenOptional(r.StateProblem),
		Phases: phasesModel{
			DNS: flattenPhase(r.Phases.DNS), Connect: flattenPhase(r.Phases.Connect), TLS: flattenPhase(r.Phases.TLS),
			FirstByte: flattenPhase(r.Phases.FirstByte), LastByte: flattenPhase(r.Phases.LastByte),
		},
	}
}

// flattenPhase turns 0, for a phase that did not happen, into null.
func flattenPhase(d input.Duration) types.String {
	if d == 0 {
		return types.StringNull()
	}
	return types.StringValue(d.String())
}
