package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
)

type webhookModel struct {
	URL         types.String    `tfsdk:"url"`
	Method      types.String    `tfsdk:"method"`
	Headers     types.Map       `tfsdk:"headers"`
	Timeout     text[durations] `tfsdk:"timeout"`
	Signing     types.Object    `tfsdk:"signing"`
	Auth        types.Object    `tfsdk:"auth"`
	CloudEvents types.String    `tfsdk:"cloud_events"`
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
	w.Signing = readSigning(ctx, read, pointer+"/signing", m.Signing)
	w.Auth = readAuth(ctx, read, pointer+"/auth", m.Auth)
	readWord(read, pointer+"/cloud_events", m.CloudEvents, &w.CloudEvents)
	if m.CloudEvents.IsUnknown() || m.Method.IsUnknown() {
		read.partial = append(read.partial, pointer+"/cloud_events") // the two have to agree
	}
	return &w
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
		w = &dispatcher.Webhook{} // a target of another kind; the difference to the configuration shows
	}
	var before webhookModel
	(&reader{}).object(ctx, "", prior, &before)
	var read reader
	readWebhook(ctx, &read, "", prior) // for the versions of secrets
	return objectFrom(ctx, diags, webhookType(), webhookModel{
		URL:         types.StringValue(w.URL),
		Method:      types.StringValue(w.Method),
		Headers:     newStrings(ctx, diags, w.Headers, before.Headers),
		Timeout:     newText[durations](formatDuration(w.Timeout)),
		Signing:     newSigning(ctx, diags, w.Signing, read.versions),
		Auth:        newAuth(ctx, diags, w.Auth, read.versions),
		CloudEvents: word(w.CloudEvents),
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
