package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// webhookTarget is the kind webhook. Its schema is in target_webhook_schema.go.
type webhookTarget struct{}

func (webhookTarget) name() string { return string(target.KindWebhook) }

type webhookModel struct {
	requestModel
	URL     types.String `tfsdk:"url"`
	Signing types.Object `tfsdk:"signing"`
	Auth    types.Object `tfsdk:"auth"`
	TLS     types.Object `tfsdk:"tls"`
}

type tlsModel struct {
	CACertificates    types.String `tfsdk:"ca_certificates"`
	ClientCertificate types.String `tfsdk:"client_certificate"`
	ClientKey         types.Object `tfsdk:"client_key"`
	MinVersion        types.String `tfsdk:"min_version"`
}

type signingModel struct {
	Secrets types.Map `tfsdk:"secret"`
}

func (webhookTarget) expand(
	ctx context.Context, e *expander, pointer string, object types.Object, to *target.Target,
) {
	var m webhookModel
	if !e.object(ctx, pointer, object, &m) {
		return
	}
	var w target.Webhook
	w.SetDefaults()
	w.URL = e.required(pointer+"/url", m.URL)
	expandRequest(ctx, e, pointer, m.requestModel, &w)
	w.Signing = expandSigning(ctx, e, pointer+"/signing", m.Signing)
	w.Auth = expandAuth(ctx, e, pointer+"/auth", m.Auth)
	w.TLS = expandTLS(ctx, e, pointer+"/tls", m.TLS)
	to.Webhook = &w
}

func expandTLS(ctx context.Context, e *expander, pointer string, object types.Object) *target.TLS {
	var m tlsModel
	if !e.object(ctx, pointer, object, &m) {
		return nil
	}
	var t target.TLS
	expandOptional(e, pointer+"/ca_certificates", m.CACertificates, &t.CACertificates)
	expandOptional(e, pointer+"/client_certificate", m.ClientCertificate, &t.ClientCertificate)
	expandOptional(e, pointer+"/min_version", m.MinVersion, &t.MinVersion)
	if m.ClientCertificate.IsUnknown() || m.ClientKey.IsUnknown() { // they must belong together
		e.incomplete = append(e.incomplete, pointer)
		e.unknown = append(e.unknown, pointer+"/client_key")
	}
	t.ClientKey = expandOptionalSecret(ctx, e, pointer+"/client_key", m.ClientKey)
	return &t
}

func expandSigning(ctx context.Context, e *expander, pointer string, object types.Object) *target.Signing {
	var m signingModel
	if !e.object(ctx, pointer, object, &m) {
		return nil
	}
	s := target.Signing{Secrets: map[string]target.Secret{}}
	if e.markUnknown(pointer+"/secrets", m.Secrets) {
		return &s
	}
	for name, element := range m.Secrets.Elements() {
		secret, _ := element.(types.Object)
		s.Secrets[name] = expandSecret(ctx, e, pointer+"/secrets"+input.Pointer(name), secret)
	}
	return &s
}

func (k webhookTarget) flatten(
	ctx context.Context, diags *diag.Diagnostics, to target.Target, prior types.Object,
) types.Object {
	of := objectType(targetType(), k.name())
	w := to.Webhook
	if w == nil {
		return nullObject(of)
	}
	var before webhookModel
	(&expander{}).object(ctx, "", prior, &before)
	var e expander
	k.expand(ctx, &e, "", prior, &target.Target{})
	secrets := secretFlattener{diags: diags, versions: e.versions}
	return flattenObject(ctx, diags, of, webhookModel{
		requestModel: flattenRequest(ctx, diags, w, before.requestModel),
		URL:          types.StringValue(w.URL),
		Signing:      flattenSigning(ctx, secrets, objectType(of, "signing"), w.Signing),
		Auth:         flattenAuth(ctx, secrets, objectType(of, "auth"), w.Auth),
		TLS:          flattenTLS(ctx, secrets, objectType(of, "tls"), w.TLS),
	})
}

func flattenSigning(
	ctx context.Context, secrets secretFlattener, of types.ObjectType, s *target.Signing,
) types.Object {
	if s == nil {
		return nullObject(of)
	}
	models := map[string]secretModel{}
	for name, secret := range s.Secrets {
		models[name] = secrets.model("/signing/secrets"+input.Pointer(name), secret)
	}
	element := of.AttrTypes["secret"].(types.MapType).ElemType
	return flattenObject(ctx, secrets.diags, of, signingModel{
		Secrets: flattenMap(ctx, secrets.diags, element, models),
	})
}

func flattenTLS(ctx context.Context, secrets secretFlattener, of types.ObjectType, t *target.TLS) types.Object {
	if t == nil {
		return nullObject(of)
	}
	return flattenObject(ctx, secrets.diags, of, tlsModel{
		CACertificates:    flattenOptional(t.CACertificates),
		ClientCertificate: flattenOptional(t.ClientCertificate),
		ClientKey:         secrets.optional(ctx, of, "client_key", "/tls", t.ClientKey),
		MinVersion:        flattenOptional(t.MinVersion),
	})
}
