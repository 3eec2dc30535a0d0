package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// newRunDataSource returns carillon_run: one run with its attempts.
func newRunDataSource() datasource.DataSource {
	return &dataSource{name: "run", schema: runDataSchema, read: readRun}
}

func runDataSchema() schema.Schema {
	attributes := singleRunRows.dataAttributes()
	attributes["id"] = schema.StringAttribute{Required: true, MarkdownDescription: "Id of the run."}
	return schema.Schema{
		MarkdownDescription: "One run of a job with its attempts: their responses, and how long each phase took.",
		Attributes:          attributes,
	}
}

var singleRunRows = rowsOf(fresh[run.Run], runRows,
	textRow("app", func(r *run.Run) *string { return &r.App }, inData, "Name of the app."),
	jsonTextRow("payload", func(r *run.Run) *json.RawMessage { return &r.Payload }, "What the run was given in place of the payload of its job, "+
		"as JSON; null if it was given none."),
	blockRow("cause", func(r *run.Run) **run.Cause { return &r.Cause }, causeRows, inData, "Why the run exists; null where its `kind` says all."),
	blockRow("shards", func(r *run.Run) **run.ShardCounts { return &r.Shards }, shardCountsRows, inData, "How many shards the broadcast has, by "+
		"their state; null for runs without shards."),
	blocksRow("attempts", func(r *run.Run) *[]run.Attempt { return &r.Attempts }, attemptRows, inData, "The attempts of the run that have "+
		"ended, the first one first.", alwaysThere),
)

// jsonTextRow is JSON as it is written; null if there is none.
func jsonTextRow[P any](name string, field func(P) *json.RawMessage, text string) *row {
	return shownRow(name, func(of P) string { return string(*field(of)) }, inData, text, emptyIsNull)
}

var attemptRows = rowsOf(fresh[run.Attempt],
	wholeRow("attempt", func(a *run.Attempt) *int { return &a.Attempt }, inData, "Number of the attempt, from 1."),
	shownRow("node", func(a *run.Attempt) string { return a.Node.String() }, inData, "Id of the node that made the attempt."),
	textRow("state", func(a *run.Attempt) *run.State { return &a.State }, inData, "How the attempt ended."),
	instantRow("started_at", func(a *run.Attempt) **time.Time { return new(&a.StartedAt) }, inData, "When the attempt began."),
	instantRow("ended_at", func(a *run.Attempt) **time.Time { return new(&a.EndedAt) }, inData, "When the attempt ended."),
	wholeRow("http_status", func(a *run.Attempt) *int { return &a.HTTPStatus }, inData, "Status of the response; null without a response.",
		emptyIsNull),
	textRow("class", func(a *run.Attempt) *run.Class { return &a.Class }, inData, "How the attempt failed, such as `timeout` or `http_5xx`; null "+
		"if it did not fail.", emptyIsNull),
	textRow("error", func(a *run.Attempt) *string { return &a.Error }, inData, "The failure in words; null if there was none.", emptyIsNull),
	blockRow("response", func(a *run.Attempt) **run.Response { return &a.Response }, responseRows, inData, "What Carillon keeps of the response; "+
		"null if it keeps nothing."),
)

var responseRows = rowsOf(fresh[run.Response],
	textRow("endpoint", func(r *run.Response) *string { return &r.Endpoint }, inData, "Id of the endpoint of a group that the attempt went to; "+
		"null for targets without a group, and if no endpoint got it.", emptyIsNull),
	textRow("request_id", func(r *run.Response) *string { return &r.RequestID }, inData, "The target's own id of the request; null if the "+
		"response names none.", emptyIsNull),
	textRow("message_id", func(r *run.Response) *string { return &r.MessageID }, inData, "The id that a queue or topic gave the message; null "+
		"for other targets.", emptyIsNull),
	mapRow("headers", func(r *run.Response) *map[string]string { return &r.Headers }, inData, "Some of its headers, with names in lower case."),
	textRow("body", func(r *run.Response) *string { return &r.Body }, inData, "The first 64 KiB of the body."),
	boolRow("body_truncated", func(r *run.Response) *bool { return &r.BodyTruncated }, inData, "Whether the body was longer than that."),
	textRow("function_error", func(r *run.Response) *string { return &r.FunctionError }, inData, "`Handled` or `Unhandled` if a Lambda function "+
		"failed; otherwise null.", emptyIsNull),
	textRow("executed_version", func(r *run.Response) *string { return &r.ExecutedVersion }, inData, "Version of the Lambda function that an "+
		"alias led to; null for webhooks.", emptyIsNull),
	textRow("log_tail", func(r *run.Response) *string { return &r.LogTail }, inData, "The end of the Lambda function's log, without text that "+
		"looks like a secret; null for webhooks.", emptyIsNull),
	jsonTextRow("state", func(r *run.Response) *json.RawMessage { return &r.State }, "JSON that the target returned as the state of the job; "+
		"null if it returned none."),
	textRow("state_problem", func(r *run.Response) *string { return &r.StateProblem }, inData, "Why a state that the target returned was not "+
		"stored; null if it was, or if it returned none.", emptyIsNull),
	textRow("callback_result", func(r *run.Response) *string { return &r.CallbackResult }, inData, "The message with which the target completed "+
		"the run by its callback; null if there was none.", emptyIsNull),
	partRow("phases", func(r *run.Response) *run.Phases { return &r.Phases }, phasesRows, inData, "How long each phase of the request took; null "+
		"for a phase that did not happen, such as connecting when a connection is reused."),
)

var phasesRows = rowsOf(fresh[run.Phases],
	phaseRow("dns", func(p *run.Phases) input.Duration { return p.DNS }, "Resolving the host name."),
	phaseRow("connect", func(p *run.Phases) input.Duration { return p.Connect }, "Connecting."),
	phaseRow("tls", func(p *run.Phases) input.Duration { return p.TLS }, "The TLS handshake."),
	phaseRow("first_byte", func(p *run.Phases) input.Duration { return p.FirstByte }, "From the start of the attempt to the first byte of the "+
		"response."),
	phaseRow("last_byte", func(p *run.Phases) input.Duration { return p.LastByte }, "From the start of the attempt to the last byte of the "+
		"response."),
)

// phaseRow is how long a phase took; null if it did not happen.
func phaseRow(name string, of func(*run.Phases) input.Duration, text string) *row {
	return shownRow(name, func(p *run.Phases) string {
		if d := of(p); d != 0 {
			return d.String()
		}
		return ""
	}, inData, text, emptyIsNull)
}

var causeRows = rowsOf(fresh[run.Cause],
	textRow("run", func(c *run.Cause) *string { return &c.Run }, inData, "Id of the run that this one follows; null if it follows none.",
		emptyIsNull),
	textRow("on", func(c *run.Cause) *string { return &c.On }, inData, "What happened to that run, such as `failure`; null if it follows none.",
		emptyIsNull),
	textRow("backfill", func(c *run.Cause) *string { return &c.Backfill }, inData, "Id of the backfill that the run is part of; null for other "+
		"runs.", emptyIsNull),
	instantRow("from", func(c *run.Cause) **time.Time { return rangeOf(c, func(r *run.Range) *time.Time { return &r.From }) }, inData,
		"First instant of the range of the backfill; null for other runs."),
	instantRow("to", func(c *run.Cause) **time.Time { return rangeOf(c, func(r *run.Range) *time.Time { return &r.To }) }, inData,
		"Last instant of the range of the backfill; null for other runs."),
	textRow("alert", func(c *run.Cause) *string { return &c.Alert }, inData, "The alert of which the run delivers a notification; null for other "+
		"runs.", emptyIsNull),
)

// rangeOf returns an end of the range of a backfill, nil if there is none.
func rangeOf(c *run.Cause, end func(*run.Range) *time.Time) **time.Time {
	var at *time.Time
	if c.Range != nil {
		at = end(c.Range)
	}
	return &at
}

// shardRows are which part of a broadcast a run is.
var shardRows = rowsOf(fresh[run.Shard],
	wholeRow("index", func(s *run.Shard) *int { return &s.Index }, inData, "From 0 to `total` - 1: the place of its endpoint in the order of ids "+
		"when the broadcast began."),
	wholeRow("total", func(s *run.Shard) *int { return &s.Total }, inData, "How many shards the broadcast has."),
	textRow("endpoint", func(s *run.Shard) *string { return &s.Endpoint }, inData, "Id of the endpoint for which the shard was made. If that "+
		"endpoint is gone, another one gets the shard; `response.endpoint` of each attempt says which.", emptyIsNull),
)

var shardCountsRows = rowsOf(fresh[run.ShardCounts],
	wholeRow("total", func(c *run.ShardCounts) *int { return &c.Total }, inData, "All shards."),
	wholeRow("succeeded", func(c *run.ShardCounts) *int { return &c.Succeeded }, inData, "Shards that succeeded."),
	wholeRow("superseded", func(c *run.ShardCounts) *int { return &c.Superseded }, inData, "Shards that their endpoints refused as stale."),
	wholeRow("failed", func(c *run.ShardCounts) *int { return &c.Failed }, inData, "Shards that ended in another way."),
	wholeRow("live", func(c *run.ShardCounts) *int { return &c.Live }, inData, "Shards that have not ended."),
)

// callbackStateRows are what is known of a run whose target says later how its attempt ended.
var callbackStateRows = rowsOf(fresh[run.CallbackState],
	textRow("endpoint", func(c *run.CallbackState) *string { return &c.Endpoint }, inData, "Id of the endpoint of a group that accepted the "+
		"attempt; null for targets without a group. Lists of runs do not have it.", emptyIsNull),
	instantRow("deadline", func(c *run.CallbackState) **time.Time { return new(&c.Deadline) }, inData, "When the attempt times out without a "+
		"callback. A heartbeat moves it."),
	instantRow("heartbeat_at", func(c *run.CallbackState) **time.Time { return &c.HeartbeatAt }, inData, "When the latest heartbeat came; null "+
		"before the first one."),
	textRow("progress", func(c *run.CallbackState) *string { return &c.Progress }, inData, "The text of the latest heartbeat that had one; null "+
		"if none did.", emptyIsNull),
	valueRow("percent", types.Int64Type, func(c *run.CallbackState) attr.Value {
		if c.Percent == nil {
			return types.Int64Null()
		}
		return types.Int64Value(int64(*c.Percent)) // 0 is not none
	}, inData, "The progress from 0 to 100 that the latest heartbeat with a number reported; null if none did."),
)

func readRun(ctx context.Context, c *connection, diags *diag.Diagnostics, m values) values {
	id := m.text("id").ValueString()
	found, err := c.Run(ctx, id)
	if err != nil {
		c.report(diags, fmt.Sprintf("read run %q", id), err)
		return m
	}
	return singleRunRows.shown(diags, &found)
}
