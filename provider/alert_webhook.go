package provider

import (
	"cmp"
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/target"
)

type alertWebhookModel struct {
	URL          types.String   `tfsdk:"url"`
	SecretURL    types.Object   `tfsdk:"secret_url"`
	Format       types.String   `tfsdk:"format"`
	RoutingKey   types.Object   `tfsdk:"routing_key"`
	Severity     types.String   `tfsdk:"severity"`
	Method       types.String   `tfsdk:"method"`
	Headers      types.Map      `tfsdk:"headers"`
	Body         types.String   `tfsdk:"body"`
	Timeout      durationString `tfsdk:"timeout"`
	SuccessCodes types.List     `tfsdk:"success_codes"`
	ExpectBody   types.String   `tfsdk:"expect_body"`
	CloudEvents  types.String   `tfsdk:"cloud_events"`
	TraceContext types.Bool     `tfsdk:"trace_context"`
	Signing      types.Object   `tfsdk:"signing"`
	Auth         types.Object   `tfsdk:"auth"`
	TLS          types.Object   `tfsdk:"tls"`
}

// request is what it has in common with the webhook of a job.
func (m alertWebhookModel) request() requestModel {
	return requestModel{
		Method: m.Method, Headers: m.Headers, Body: m.Body, Timeout: m.Timeout, SuccessCodes: m.SuccessCodes, ExpectBody: m.ExpectBody,
		CloudEvents: m.CloudEvents, TraceContext: m.TraceContext,
	}
}

func expandAlertWebhook(ctx context.Context, e *expander, pointer string, object types.Object) *target.AlertWebhook {
	var m alertWebhookModel
	if !e.object(ctx, pointer, object, &m) {
		return nil
	}
	var w target.AlertWebhook
	w.SetDefaults()
	w.URL = e.required(pointer+"/url", m.URL)
	expandRequest(ctx, e, pointer, m.request(), &w.Webhook)
	w.Signing = expandSigning(ctx, e, pointer+"/signing", m.Signing)
	w.Auth = expandAuth(ctx, e, pointer+"/auth", m.Auth)
	w.TLS = expandTLS(ctx, e, pointer+"/tls", m.TLS)
	expandOptional(e, pointer+"/format", m.Format, &w.Format)
	expandOptional(e, pointer+"/severity", m.Severity, &w.Severity)
	w.SecretURL = expandOptionalSecret(ctx, e, pointer+"/secret_url", m.SecretURL)
	w.RoutingKey = expandOptionalSecret(ctx, e, pointer+"/routing_key", m.RoutingKey)
	if m.Format.IsUnknown() { // it decides which of these may be there
		e.incomplete = append(e.incomplete, pointer+"/body", pointer+"/routing_key", pointer+"/severity", pointer+"/cloud_events")
	}
	if m.SecretURL.IsUnknown() || m.URL.IsUnknown() { // they must have the same origin
		e.incomplete = append(e.incomplete, pointer+"/url", pointer+"/secret_url/value")
	}
	if m.Headers.IsUnknown() { // they say whether the body is JSON
		e.incomplete = append(e.incomplete, pointer+"/body")
	}
	return &w
}

func flattenAlertWebhook(
	ctx context.Context, diags *diag.Diagnostics, w *target.AlertWebhook, prior types.Object,
) types.Object {
	of := alertWebhookAttribute().GetType().(types.ObjectType)
	if w == nil {
		return nullObject(of)
	}
	var before alertWebhookModel
	(&expander{}).object(ctx, "", prior, &before)
	var e expander
	expandAlertWebhook(ctx, &e, "", prior)
	secrets := secretFlattener{diags: diags, versions: e.versions}
	request := flattenRequest(ctx, diags, &w.Webhook, before.request())
	return flattenObject(ctx, diags, of, alertWebhookModel{
		URL:        types.StringValue(w.URL),
		SecretURL:  secrets.optional(ctx, of, "secret_url", "", w.SecretURL),
		Format:     types.StringValue(string(cmp.Or(w.Format, target.AlertFormatCarillon))),
		RoutingKey: secrets.optional(ctx, of, "routing_key", "", w.RoutingKey),
		Severity:   flattenOptional(w.Severity),
		Method:     request.Method, Headers: request.Headers, Body: request.Body, Timeout: request.Timeout,
		SuccessCodes: request.SuccessCodes, ExpectBody: request.ExpectBody, CloudEvents: request.CloudEvents,
		TraceContext: request.TraceContext,
		Signing:      flattenSigning(ctx, secrets, objectType(of, "signing"), w.Signing),
		Auth:         flattenAuth(ctx, secrets, objectType(of, "auth"), w.Auth),
		TLS:          flattenTLS(ctx, secrets, objectType(of, "tls"), w.TLS),
	})
}
