package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
)

var _ datasource.DataSourceWithConfigure = (*runDataSource)(nil)

// runDataSource is carillon_run: one run with its attempts.
type runDataSource struct{ conn *connection }

func newRunDataSource() datasource.DataSource { return &runDataSource{} }

type singleRunModel struct {
	App string `tfsdk:"app"`
	runModel
	Attempts []attemptModel `tfsdk:"attempts"`
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
	RequestID     types.String      `tfsdk:"request_id"`
	Headers       map[string]string `tfsdk:"headers"`
	Body          types.String      `tfsdk:"body"`
	BodyTruncated types.Bool        `tfsdk:"body_truncated"`
	Phases        phasesModel       `tfsdk:"phases"`

	FunctionError   types.String `tfsdk:"function_error"`
	ExecutedVersion types.String `tfsdk:"executed_version"`
	LogTail         types.String `tfsdk:"log_tail"`
}

type phasesModel struct {
	DNS       types.String `tfsdk:"dns"`
	Connect   types.String `tfsdk:"connect"`
	TLS       types.String `tfsdk:"tls"`
	FirstByte types.String `tfsdk:"first_byte"`
	LastByte  types.String `tfsdk:"last_byte"`
}

func (d *runDataSource) Metadata(_ context.Context, req datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_run"
}

func (d *runDataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	attributes := runAttributes(runStates())
	attributes["id"] = schema.StringAttribute{Required: true, MarkdownDescription: "Id of the run."}
	attributes["app"] = computedString("Name of the app.")
	attributes["attempts"] = schema.ListNestedAttribute{
		Computed: true, MarkdownDescription: "Its attempts that have ended, the first one first.",
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"attempt":     computedInt("Its number, from 1."),
			"node":        computedString("Id of the node that made it."),
			"state":       computedString("How it ended."),
			"started_at":  computedTime("When it began."),
			"ended_at":    computedTime("When it ended."),
			"http_status": computedInt("Status of the response; null if none came."),
			"class":       computedString("How it failed, such as `timeout` or `http_5xx`; null if it did not."),
			"error":       computedString("The failure in words; null if there is none."),
			"response": schema.SingleNestedAttribute{
				Computed: true, MarkdownDescription: "What is kept of the response; null if nothing is.",
				Attributes: map[string]schema.Attribute{
					"request_id":     computedString("What the target calls the request; null if it does not say."),
					"headers":        schema.MapAttribute{Computed: true, ElementType: types.StringType, MarkdownDescription: "Some of its headers, names in lower case."},
					"body":           computedString("Its beginning, of at most 64 KiB."),
					"body_truncated": schema.BoolAttribute{Computed: true, MarkdownDescription: "Whether the body went on."},

					"function_error":   computedString("`Handled` or `Unhandled`, of a Lambda function that failed; else null."),
					"executed_version": computedString("The version of the Lambda function that an alias led to; null for webhooks."),
					"log_tail":         computedString("The end of the function's log, without what looks like a secret; null for webhooks."),
					"phases": schema.SingleNestedAttribute{
						Computed: true, MarkdownDescription: "How long its parts took; null where there was none, as on a connection that was kept.",
						Attributes: map[string]schema.Attribute{
							"dns":        computedString("Asking the name server."),
							"connect":    computedString("Connecting."),
							"tls":        computedString("The handshake of TLS."),
							"first_byte": computedString("From the attempt's start to the first byte of the response."),
							"last_byte":  computedString("From the attempt's start to its last byte."),
						},
					},
				},
			},
		}},
	}
	resp.Schema = schema.Schema{
		MarkdownDescription: "One run of a job, with its attempts: how long each phase took, and what was answered.",
		Attributes:          attributes,
	}
}

func (d *runDataSource) Configure(_ context.Context, req datasource.ConfigureRequest, _ *datasource.ConfigureResponse) {
	d.conn = configured(req.ProviderData)
}

func (d *runDataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var id types.String
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root("id"), &id)...)
	if resp.Diagnostics.HasError() || !d.conn.ready(&resp.Diagnostics) {
		return
	}
	run, err := d.conn.Run(ctx, id.ValueString())
	if err != nil {
		d.conn.report(&resp.Diagnostics, fmt.Sprintf("read run %q", id.ValueString()), err)
		return
	}
	m := singleRunModel{App: run.App, runModel: flattenRun(run), Attempts: []attemptModel{}}
	for _, a := range run.Attempts {
		m.Attempts = append(m.Attempts, flattenAttempt(a))
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

func flattenAttempt(a dispatcher.Attempt) attemptModel {
	m := attemptModel{
		Attempt: types.Int64Value(int64(a.Attempt)), Node: types.StringValue(a.Node.String()), State: types.StringValue(string(a.State)),
		StartedAt: timetypes.NewRFC3339TimeValue(a.StartedAt), EndedAt: timetypes.NewRFC3339TimeValue(a.EndedAt),
		Class: flattenOptional(a.Class), Error: flattenOptional(a.Error),
	}
	if a.HTTPStatus != 0 {
		m.HTTPStatus = types.Int64Value(int64(a.HTTPStatus))
	}
	if kept := a.Response; kept != nil {
		m.Response = &responseModel{
			RequestID: flattenOptional(kept.RequestID), Headers: kept.Headers, Body: types.StringValue(kept.Body), BodyTruncated: types.BoolValue(kept.BodyTruncated),
			FunctionError: flattenOptional(kept.FunctionError), ExecutedVersion: flattenOptional(kept.ExecutedVersion), LogTail: flattenOptional(kept.LogTail),
			Phases: phasesModel{
				DNS: phase(kept.Phases.DNS), Connect: phase(kept.Phases.Connect), TLS: phase(kept.Phases.TLS),
				FirstByte: phase(kept.Phases.FirstByte), LastByte: phase(kept.Phases.LastByte),
			},
		}
	}
	return m
}

// phase is null for one that was not.
func phase(d dispatcher.Duration) types.String {
	if d == 0 {
		return types.StringNull()
	}
	return types.StringValue(d.String())
}
