package provider

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
)

// webhookTarget is the kind webhook.
type webhookTarget struct{}

func (webhookTarget) name() string { return string(dispatcher.TargetWebhook) }

type webhookModel struct {
	URL          types.String   `tfsdk:"url"`
	Method       types.String   `tfsdk:"method"`
	Headers      types.Map      `tfsdk:"headers"`
	Body         types.String   `tfsdk:"body"`
	Timeout      durationString `tfsdk:"timeout"`
	Signing      types.Object   `tfsdk:"signing"`
	Auth         types.Object   `tfsdk:"auth"`
	TLS          types.Object   `tfsdk:"tls"`
	SuccessCodes types.List     `tfsdk:"success_codes"`
	ExpectBody   types.String   `tfsdk:"expect_body"`
	CloudEvents  types.String   `tfsdk:"cloud_events"`
}

type tlsModel struct {
	CACertificates    types.String `tfsdk:"ca_certificates"`
	ClientCertificate types.String `tfsdk:"client_certificate"`
	ClientKey         types.Object `tfsdk:"client_key"`
	MinVersion        types.String `tfsdk:"min_version"`
}

type signingModel struct {
	Secrets types.Map `tfsdk:"secrets"`
}

func (webhookTarget) expand(
	ctx context.Context, e *expander, pointer string, object types.Object, target *dispatcher.Target,
) {
	var m webhookModel
	if !e.object(ctx, pointer, object, &m) {
		return
	}
	var w dispatcher.Webhook
	w.SetDefaults()
	w.URL = e.required(pointer+"/url", m.URL)
	if !e.markUnknown(pointer+"/method", m.Method) && !m.Method.IsNull() {
		w.Method = m.Method.ValueString()
	}
	w.Timeout = e.duration(pointer+"/timeout", m.Timeout, w.Timeout)
	w.Headers = e.stringMap(pointer+"/headers", m.Headers)
	expandOptional(e, pointer+"/body", m.Body, &w.Body)
	w.Signing = expandSigning(ctx, e, pointer+"/signing", m.Signing)
	w.Auth = expandAuth(ctx, e, pointer+"/auth", m.Auth)
	w.TLS = expandTLS(ctx, e, pointer+"/tls", m.TLS)
	for _, code := range e.stringList(pointer+"/success_codes", m.SuccessCodes) {
		w.SuccessCodes = append(w.SuccessCodes, dispatcher.SuccessCode(code))
	}
	expandOptional(e, pointer+"/expect_body", m.ExpectBody, &w.ExpectBody)
	expandOptional(e, pointer+"/cloud_events", m.CloudEvents, &w.CloudEvents)
	if m.CloudEvents.IsUnknown() || m.Method.IsUnknown() { // not every method can carry an event
		e.incomplete = append(e.incomplete, pointer+"/cloud_events")
	}
	target.Webhook = &w
}

func expandTLS(ctx context.Context, e *expander, pointer string, object types.Object) *dispatcher.TLS {
	var m tlsModel
	if !e.object(ctx, pointer, object, &m) {
		return nil
	}
	var t dispatcher.TLS
	expandOptional(e, pointer+"/ca_certificates", m.CACertificates, &t.CACertificates)
	expandOptional(e, pointer+"/client_certificate", m.ClientCertificate, &t.ClientCertificate)
	expandOptional(e, pointer+"/min_version", m.MinVersion, &t.MinVersion)
	if m.ClientCertificate.IsUnknown() || m.ClientKey.IsUnknown() { // they must belong together
		e.incomplete = append(e.incomplete, pointer)
		e.unknown = append(e.unknown, pointer+"/client_key")
	}
	if !m.ClientKey.IsNull() {
		key := expandSecret(ctx, e, pointer+"/client_key", m.ClientKey)
		t.ClientKey = &key
	}
	return &t
}

func expandSigning(ctx context.Context, e *expander, pointer string, object types.Object) *dispatcher.Signing {
	var m signingModel
	if !e.object(ctx, pointer, object, &m) {
		return nil
	}
	s := dispatcher.Signing{Secrets: map[string]dispatcher.Secret{}}
	if e.markUnknown(pointer+"/secrets", m.Secrets) {
		return &s
	}
	for name, element := range m.Secrets.Elements() {
		secret, _ := element.(types.Object)
		s.Secrets[name] = expandSecret(ctx, e, pointer+"/secrets"+dispatcher.Pointer(name), secret)
	}
	return &s
}

func (k webhookTarget) flatten(
	ctx context.Context, diags *diag.Diagnostics, target dispatcher.Target, prior types.Object,
) types.Object {
	of := k.attribute().GetType().(types.ObjectType)
	w := target.Webhook
	if w == nil {
		return nullObject(of)
	}
	var before webhookModel
	(&expander{}).object(ctx, "", prior, &before)
	var e expander
	k.expand(ctx, &e, "", prior, &dispatcher.Target{})
	secrets := secretFlattener{diags: diags, versions: e.versions}
	return flattenObject(ctx, diags, of, webhookModel{
		URL: types.StringValue(w.URL), Method: types.StringValue(w.Method),
		Headers: flattenStringMap(ctx, diags, w.Headers, before.Headers), Body: flattenOptional(w.Body),
		Timeout:      flattenDuration(w.Timeout),
		Signing:      flattenSigning(ctx, secrets, objectType(of, "signing"), w.Signing),
		Auth:         flattenAuth(ctx, secrets, objectType(of, "auth"), w.Auth),
		TLS:          flattenTLS(ctx, secrets, objectType(of, "tls"), w.TLS),
		SuccessCodes: flattenSuccessCodes(ctx, diags, w.SuccessCodes, before.SuccessCodes),
		ExpectBody:   flattenOptional(w.ExpectBody), CloudEvents: flattenOptional(w.CloudEvents),
	})
}

func flattenSigning(
	ctx context.Context, secrets secretFlattener, of types.ObjectType, s *dispatcher.Signing,
) types.Object {
	if s == nil {
		return nullObject(of)
	}
	models := map[string]secretModel{}
	for name, secret := range s.Secrets {
		models[name] = secrets.model("/signing/secrets"+dispatcher.Pointer(name), secret)
	}
	element := of.AttrTypes["secrets"].(types.MapType).ElemType
	return flattenObject(ctx, secrets.diags, of, signingModel{Secrets: flattenMap(ctx, secrets.diags, element, models)})
}

func flattenTLS(ctx context.Context, secrets secretFlattener, of types.ObjectType, t *dispatcher.TLS) types.Object {
	if t == nil {
		return nullObject(of)
	}
	return flattenObject(ctx, secrets.diags, of, tlsModel{
		CACertificates: flattenOptional(t.CACertificates), ClientCertificate: flattenOptional(t.ClientCertificate),
		ClientKey:  secrets.optional(ctx, of, "client_key", "/tls", t.ClientKey),
		MinVersion: flattenOptional(t.MinVersion),
	})
}

// flattenSuccessCodes returns null for no codes, unless prior is an empty list.
func flattenSuccessCodes(
	ctx context.Context, diags *diag.Diagnostics, codes []dispatcher.SuccessCode, prior types.List,
) types.List {
	if len(codes) == 0 && (prior.IsNull() || prior.IsUnknown() || len(prior.Elements()) > 0) {
		return types.ListNull(types.StringType)
	}
	return flattenList(ctx, diags, types.StringType, codes)
}

func (webhookTarget) attribute() schema.SingleNestedAttribute {
	var defaults dispatcher.Webhook
	defaults.SetDefaults()
	return optionalObject("An HTTP request. Any 2xx response is a success, and redirects are not followed. Default: the target is "+
		"of another kind. "+checkSpelling, map[string]schema.Attribute{
		"url": requiredString("Absolute URL, `http` or `https`, of at most 2048 characters, without user, password " +
			"and fragment. The part after the host may be a template, like `body`; values are percent-encoded."),
		"method": stringWithDefault(defaults.Method, "HTTP method: "+either(dispatcher.Methods)+". `GET` and `HEAD` send no body."),
		"headers": optionalStringMap("Headers to send: at most 50, each value at most 8 KiB. Values may be templates, like `body`. " +
			"Headers that frame the request or identify the sender (`Host`, `Content-Length`, `User-Agent`, `webhook-*` and the " +
			"like) are refused. The state contains all headers; set secret ones from a variable marked `sensitive`. Default: none."),
		"body": optionalString("A template for the body, which replaces the payload. Template and result are at most 256 KiB. " +
			"These actions insert values of the attempt: " + either(templateActions()) + ". `{{json .Job}}` and `{{urlquery .Job}}` write any of " +
			"them as JSON or percent-encoded, `{{date \"%Y-%m-%d\" \"Europe/Berlin\" .ScheduledAt}}` writes an instant in the format " +
			"of strftime, and `{{if .PreviousFire}}…{{else}}…{{end}}` tests whether there is one. Write `{{\"{{\"}}` for literal " +
			"braces. The body is sent as `application/json` unless `headers` say otherwise. Default: the payload is the body."),
		"timeout": durationWithDefault(defaults.Timeout, "Time limit of one attempt, from connecting to the last byte, such as `500ms`, "+
			"`30s` or `1h30m`; from `100ms` to `24h`."),
		"signing": signingAttribute(),
		"auth":    authAttribute(),
		"tls":     tlsAttribute(),
		"success_codes": schema.ListAttribute{
			Optional: true, ElementType: types.StringType,
			MarkdownDescription: fmt.Sprintf("Statuses that count as success, such as `\"204\"`, or classes of statuses, such as "+
				"`\"2xx\"`; at most %d. Default: `[\"2xx\"]`.", dispatcher.MaxSuccessCodes),
		},
		"expect_body": optionalString("A regular expression (RE2) that the first 64 KiB of a successful response's body must match; " +
			"otherwise the attempt fails. Default: any body is accepted."),
		"cloud_events": optionalString("Makes each request a CloudEvent 1.0: `binary` puts its attributes into headers, `structured` " +
			"wraps the payload in an envelope. Default: requests are not CloudEvents."),
	})
}

// templateActions are the fields of templates as a user writes them.
func templateActions() []string {
	var all []string
	for _, field := range dispatcher.TemplateFields {
		all = append(all, strings.Replace("{{."+field+"}}", ".Payload", "json .Payload", 1))
	}
	return all
}

func signingAttribute() schema.Attribute {
	return optionalObject("Signs each request by Standard Webhooks, in the header `webhook-signature`. "+checkSpelling+
		" Default: requests are not signed.", map[string]schema.Attribute{
		"secrets": schema.MapNestedAttribute{
			Required: true,
			MarkdownDescription: fmt.Sprintf("Secrets by a name (%s), at most %d. Each request carries a signature for each secret. "+
				"To replace a secret, add the new one, give it to the receivers, and then remove the old one. `whsec_` and base64 of 24 "+
				"to 64 bytes makes HMAC-SHA256 signatures (`v1`), `whsk_` and base64 of a private key makes ed25519 ones (`v1a`).",
				nameRule, dispatcher.MaxSigningSecrets),
			NestedObject: schema.NestedAttributeObject{Attributes: secretAttributes()},
		},
	})
}

func tlsAttribute() schema.Attribute {
	return optionalObject("Settings of `https` connections. "+checkSpelling+" Default: the certificates of the node's system, and "+
		"TLS 1.2 or later.", map[string]schema.Attribute{
		"ca_certificates": optionalString("PEM certificates of the authorities that may sign the target's certificate, instead of " +
			"those that the node's system trusts. Default: those of the system."),
		"client_certificate": optionalString("PEM certificate chain that the node presents. Default: none."),
		"client_key":         optionalObject("PEM private key of the client certificate. Default: none.", secretAttributes()),
		"min_version":        optionalString("`1.2` or `1.3`. Default: `1.2`."),
	})
}
