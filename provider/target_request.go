package provider

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/target"
)

// requestModel is what a webhook and a request to an endpoint of a group have in common.
type requestModel struct {
	Method       types.String   `tfsdk:"method"`
	Headers      types.Map      `tfsdk:"headers"`
	Body         types.String   `tfsdk:"body"`
	Timeout      durationString `tfsdk:"timeout"`
	SuccessCodes types.List     `tfsdk:"success_codes"`
	ExpectBody   types.String   `tfsdk:"expect_body"`
	CloudEvents  types.String   `tfsdk:"cloud_events"`
	Callback     types.Object   `tfsdk:"callback"`
	TraceContext types.Bool     `tfsdk:"trace_context"`
}

func requestAttributes(defaults target.Webhook) map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"method": stringWithDefault(defaults.Method, "HTTP method: "+either(target.Methods)+". `GET` and `HEAD` send no body."),
		"headers": optionalStringMap("Headers to send: at most 50, each value at most 8 KiB. Values may be templates, like `body`. " +
			"Headers that frame the request or identify the sender (`Host`, `Content-Length`, `User-Agent`, `webhook-*` and the " +
			"like) are refused. The state contains all headers; set secret ones from a variable marked `sensitive`. Default: none."),
		"body": optionalString("A template for the body, which replaces the payload. Template and result are at most 256 KiB. " +
			"These actions insert values of the attempt: " + either(templateActions(target.TemplateFields)) + ". With `callback`, " +
			"these do, too: " +
			either(templateActions(target.CallbackTemplateFields)) + ". `{{json .Job}}` and `{{urlquery .Job}}` write any of " +
			"them as JSON or percent-encoded, `{{date \"%Y-%m-%d\" \"Europe/Berlin\" .ScheduledAt}}` writes an instant in the format " +
			"of strftime, and `{{if .PreviousFire}}…{{else}}…{{end}}` tests whether there is one. Write `{{\"{{\"}}` for literal " +
			"braces. The body is sent as `application/json` unless `headers` say otherwise. Default: the payload is the body."),
		"timeout": durationWithDefault(defaults.Timeout, "Time limit of one attempt, from connecting to the last byte, such as `500ms`, "+
			"`30s` or `1h30m`; from `100ms` to `24h`."),
		"success_codes": schema.ListAttribute{
			Optional: true, ElementType: types.StringType,
			MarkdownDescription: fmt.Sprintf("Statuses that count as success, such as `\"204\"`, or classes of statuses, such as "+
				"`\"2xx\"`; at most %d. Default: `[\"2xx\"]`.", target.MaxSuccessCodes),
		},
		"expect_body": optionalString("A regular expression (RE2) that the first 64 KiB of a successful response's body must match; " +
			"otherwise the attempt fails. Default: any body is accepted."),
		"cloud_events": optionalString("Makes each request a CloudEvent 1.0: `binary` puts its attributes into headers, `structured` " +
			"wraps the payload in an envelope. Default: requests are not CloudEvents."),
		"callback": callbackAttribute("Lets the target respond with status 202 and finish later: the run then waits for its callback. " +
			"Any other success ends the run at once. The nodes need `--callback-url`. Default: 202 is a success like any other."),
		"trace_context": traceContextAttribute("as the header `traceparent`"),
	}
}

// templateActions are the fields of templates as a user writes them.
func templateActions(fields []string) []string {
	var all []string
	for _, field := range fields {
		all = append(all, strings.Replace("{{."+field+"}}", ".Payload", "json .Payload", 1))
	}
	return all
}

// expandRequest sets what the model has of w.
func expandRequest(ctx context.Context, e *expander, pointer string, m requestModel, w *target.Webhook) {
	if !e.markUnknown(pointer+"/method", m.Method) && !m.Method.IsNull() {
		w.Method = m.Method.ValueString()
	}
	w.Timeout = e.duration(pointer+"/timeout", m.Timeout, w.Timeout)
	w.Headers = e.stringMap(pointer+"/headers", m.Headers)
	expandOptional(e, pointer+"/body", m.Body, &w.Body)
	if codes := e.stringList(pointer+"/success_codes", m.SuccessCodes); codes != nil {
		w.SuccessCodes = make([]target.SuccessCode, len(codes))
		for i, code := range codes {
			w.SuccessCodes[i] = target.SuccessCode(code)
		}
	}
	expandOptional(e, pointer+"/expect_body", m.ExpectBody, &w.ExpectBody)
	expandOptional(e, pointer+"/cloud_events", m.CloudEvents, &w.CloudEvents)
	w.Callback = expandCallback(ctx, e, pointer+"/callback", m.Callback)
	w.TraceContext = e.bool(pointer+"/trace_context", m.TraceContext, false)
	if m.CloudEvents.IsUnknown() || m.Method.IsUnknown() { // not every method can carry an event
		e.incomplete = append(e.incomplete, pointer+"/cloud_events")
	}
}

func flattenRequest(ctx context.Context, diags *diag.Diagnostics, w *target.Webhook, prior requestModel) requestModel {
	return requestModel{
		Method:       types.StringValue(w.Method),
		Headers:      flattenStringMap(ctx, diags, w.Headers, prior.Headers),
		Body:         flattenOptional(w.Body),
		Timeout:      flattenDuration(w.Timeout),
		SuccessCodes: flattenSuccessCodes(ctx, diags, w.SuccessCodes, prior.SuccessCodes),
		ExpectBody:   flattenOptional(w.ExpectBody),
		CloudEvents:  flattenOptional(w.CloudEvents),
		Callback:     flattenCallback(ctx, diags, w.Callback),
		TraceContext: flattenOptionalBool(w.TraceContext, prior.TraceContext),
	}
}

// flattenSuccessCodes returns null for no codes, unless prior is an empty list.
func flattenSuccessCodes(
	ctx context.Context, diags *diag.Diagnostics, codes []target.SuccessCode, prior types.List,
) types.List {
	if len(codes) == 0 && (prior.IsNull() || prior.IsUnknown() || len(prior.Elements()) > 0) {
		return types.ListNull(types.StringType)
	}
	return flattenList(ctx, diags, types.StringType, codes)
}
