package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
)

type webhookModel struct {
	URL          types.String    `tfsdk:"url"`
	Method       types.String    `tfsdk:"method"`
	Headers      types.Map       `tfsdk:"headers"`
	Body         types.String    `tfsdk:"body"`
	Timeout      text[durations] `tfsdk:"timeout"`
	Signing      types.Object    `tfsdk:"signing"`
	Auth         types.Object    `tfsdk:"auth"`
	TLS          types.Object    `tfsdk:"tls"`
	SuccessCodes types.List      `tfsdk:"success_codes"`
	ExpectBody   types.String    `tfsdk:"expect_body"`
	CloudEvents  types.String    `tfsdk:"cloud_events"`
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

// readWebhook returns nil where there is none to read.
func readWebhook(ctx context.Context, read *reader, pointer string, object types.Object) *dispatcher.Webhook {
	var m webhookModel
	if !read.object(ctx, pointer, object, &m) {
		return nil
	}
	var w dispatcher.Webhook
	w.SetDefaults()
	w.URL = read.required(pointer+"/url", m.URL)
	if !read.unknown(pointer+"/method", m.Method) && !m.Method.IsNull() {
		w.Method = m.Method.ValueString()
	}
	w.Timeout = read.duration(pointer+"/timeout", m.Timeout, w.Timeout)
	w.Headers = readStrings(read, pointer+"/headers", m.Headers)
	readWord(read, pointer+"/body", m.Body, &w.Body)
	w.Signing = readSigning(ctx, read, pointer+"/signing", m.Signing)
	w.Auth = readAuth(ctx, read, pointer+"/auth", m.Auth)
	w.TLS = readTLS(ctx, read, pointer+"/tls", m.TLS)
	for _, code := range read.texts(pointer+"/success_codes", m.SuccessCodes) {
		w.SuccessCodes = append(w.SuccessCodes, dispatcher.SuccessCode(code))
	}
	readWord(read, pointer+"/expect_body", m.ExpectBody, &w.ExpectBody)
	readWord(read, pointer+"/cloud_events", m.CloudEvents, &w.CloudEvents)
	if m.CloudEvents.IsUnknown() || m.Method.IsUnknown() {
		read.partial = append(read.partial, pointer+"/cloud_events") // the two have to agree
	}
	return &w
}

func readTLS(ctx context.Context, read *reader, pointer string, object types.Object) *dispatcher.TLS {
	var m tlsModel
	if !read.object(ctx, pointer, object, &m) {
		return nil
	}
	var t dispatcher.TLS
	readWord(read, pointer+"/ca_certificates", m.CACertificates, &t.CACertificates)
	readWord(read, pointer+"/client_certificate", m.ClientCertificate, &t.ClientCertificate)
	readWord(read, pointer+"/min_version", m.MinVersion, &t.MinVersion)
	if m.ClientCertificate.IsUnknown() || m.ClientKey.IsUnknown() {
		read.partial = append(read.partial, pointer)
		read.unknown(pointer+"/client_key", types.StringUnknown()) // the two have to agree
	}
	if !m.ClientKey.IsNull() {
		key := readSecret(ctx, read, pointer+"/client_key", m.ClientKey)
		t.ClientKey = &key
	}
	return &t
}

func readSigning(ctx context.Context, read *reader, pointer string, object types.Object) *dispatcher.Signing {
	var m signingModel
	if !read.object(ctx, pointer, object, &m) {
		return nil
	}
	s := dispatcher.Signing{Secrets: map[string]dispatcher.Secret{}}
	if read.unknown(pointer+"/secrets", m.Secrets) {
		return &s
	}
	for name, element := range m.Secrets.Elements() {
		secret, _ := element.(types.Object)
		s.Secrets[name] = readSecret(ctx, read, pointer+"/secrets"+dispatcher.Pointer(name), secret)
	}
	return &s
}

// newWebhook makes the model of a webhook; prior is what it takes the place of.
func newWebhook(ctx context.Context, diags *diag.Diagnostics, w *dispatcher.Webhook, prior types.Object) types.Object {
	if w == nil {
		return types.ObjectNull(webhookType().AttrTypes)
	}
	var before webhookModel
	(&reader{}).object(ctx, "", prior, &before)
	var read reader
	readWebhook(ctx, &read, "", prior) // for the versions of secrets
	return objectFrom(ctx, diags, webhookType(), webhookModel{
		URL:          types.StringValue(w.URL),
		Method:       types.StringValue(w.Method),
		Headers:      newStrings(ctx, diags, w.Headers, before.Headers),
		Body:         word(w.Body),
		Timeout:      newText[durations](formatDuration(w.Timeout)),
		Signing:      newSigning(ctx, diags, w.Signing, read.versions),
		Auth:         newAuth(ctx, diags, w.Auth, read.versions),
		TLS:          newTLS(ctx, diags, w.TLS, read.versions),
		SuccessCodes: newCodes(ctx, diags, w.SuccessCodes, before.SuccessCodes),
		ExpectBody:   word(w.ExpectBody),
		CloudEvents:  word(w.CloudEvents),
	})
}

func newSigning(ctx context.Context, diags *diag.Diagnostics, s *dispatcher.Signing, versions map[string]types.String) types.Object {
	of := nested(webhookType(), "signing")
	if s == nil {
		return types.ObjectNull(of.AttrTypes)
	}
	secrets := map[string]secretModel{}
	for name, secret := range s.Secrets {
		secrets[name] = newSecret(secret, versions["/signing/secrets"+dispatcher.Pointer(name)])
	}
	element := of.AttrTypes["secrets"].(types.MapType).ElemType
	return objectFrom(ctx, diags, of, signingModel{Secrets: mapFrom(ctx, diags, element, secrets)})
}

func webhookType() types.ObjectType { return webhookAttribute().GetType().(types.ObjectType) }

// nested is the type of an object within an object.
func nested(of types.ObjectType, name string) types.ObjectType {
	return of.AttrTypes[name].(types.ObjectType)
}

func newTLS(ctx context.Context, diags *diag.Diagnostics, t *dispatcher.TLS, versions map[string]types.String) types.Object {
	of := nested(webhookType(), "tls")
	if t == nil {
		return types.ObjectNull(of.AttrTypes)
	}
	m := tlsModel{
		CACertificates: word(t.CACertificates), ClientCertificate: word(t.ClientCertificate), MinVersion: word(t.MinVersion),
		ClientKey: types.ObjectNull(nested(of, "client_key").AttrTypes),
	}
	if t.ClientKey != nil {
		m.ClientKey = secretObjects{diags, versions}.make(ctx, of, "client_key", "/tls", *t.ClientKey)
	}
	return objectFrom(ctx, diags, of, m)
}

// newCodes makes a list of codes. Without any it is null, unless prior was an empty list: the two
// are not told apart on the wire.
func newCodes(ctx context.Context, diags *diag.Diagnostics, codes []dispatcher.SuccessCode, prior types.List) types.List {
	if len(codes) == 0 && (prior.IsNull() || prior.IsUnknown() || len(prior.Elements()) > 0) {
		return types.ListNull(types.StringType)
	}
	list, found := types.ListValueFrom(ctx, types.StringType, append([]dispatcher.SuccessCode{}, codes...))
	diags.Append(found...)
	return list
}
