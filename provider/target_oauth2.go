package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/target"
)

// oauth2Model is the attribute oauth2 of auth.
type oauth2Model struct {
	TokenURL       types.String `tfsdk:"token_url"`
	ClientID       types.String `tfsdk:"client_id"`
	ClientAuth     types.String `tfsdk:"client_auth"`
	ClientSecret   types.Object `tfsdk:"client_secret"`
	PrivateKey     types.Object `tfsdk:"private_key"`
	KeyID          types.String `tfsdk:"key_id"`
	Algorithm      types.String `tfsdk:"algorithm"`
	Scopes         types.List   `tfsdk:"scopes"`
	Audience       types.String `tfsdk:"audience"`
	CACertificates types.String `tfsdk:"ca_certificates"`
}

func oauth2Attribute() schema.Attribute {
	return optionalObject("OAuth 2 client credentials: each node gets a bearer token from an authorization server, and keeps it until "+
		"shortly before it expires. Default: none.",
		map[string]schema.Attribute{
			"token_url": requiredString("URL of the token endpoint. The egress rules of nodes and bounds apply to it, as to the URL of a webhook."),
			"client_id": requiredString("Id of the client."),
			"client_auth": optionalString("How the client authenticates at the token endpoint: " + either(target.OAuth2ClientAuths) +
				". Default: `basic`."),
			"client_secret": optionalObject("The client's secret, for `basic` and `post`. Set `reference` or `value`. Default: none.",
				secretAttributes()),
			"private_key": optionalObject("The client's private key in PEM, for `private_key_jwt`. Set `reference` or `value`. Default: none.",
				secretAttributes()),
			"key_id": optionalString("Id of the private key, sent as `kid` in the JWT. Default: the JWT has none."),
			"algorithm": optionalString("Algorithm that signs the JWT: " + either(target.AssertionAlgorithms) +
				". Default: `RS256`."),
			"scopes": schema.ListAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: fmt.Sprintf("Scopes of the token; at most %d. Default: the authorization server chooses.", target.MaxScopes),
			},
			"audience": optionalString("Audience of the token, which some authorization servers require. Default: none is sent."),
			"ca_certificates": optionalString("PEM certificates of the authorities to trust for the token endpoint. Default: those of the " +
				"node's system."),
		})
}

func expandOAuth2(ctx context.Context, e *expander, pointer string, object types.Object) *target.OAuth2Auth {
	var m oauth2Model
	if !e.object(ctx, pointer, object, &m) {
		return nil
	}
	o := target.OAuth2Auth{
		TokenURL: e.required(pointer+"/token_url", m.TokenURL),
		ClientID: e.required(pointer+"/client_id", m.ClientID),
		Scopes:   e.stringList(pointer+"/scopes", m.Scopes),
	}
	if o.Scopes == nil && !m.Scopes.IsNull() && !m.Scopes.IsUnknown() {
		o.Scopes = []string{} // which the API refuses
	}
	expandOptional(e, pointer+"/client_auth", m.ClientAuth, &o.ClientAuth)
	expandOptional(e, pointer+"/key_id", m.KeyID, &o.KeyID)
	expandOptional(e, pointer+"/algorithm", m.Algorithm, &o.Algorithm)
	expandOptional(e, pointer+"/audience", m.Audience, &o.Audience)
	expandOptional(e, pointer+"/ca_certificates", m.CACertificates, &o.CACertificates)
	o.ClientSecret = expandOptionalSecret(ctx, e, pointer+"/client_secret", m.ClientSecret)
	o.PrivateKey = expandOptionalSecret(ctx, e, pointer+"/private_key", m.PrivateKey)
	for _, v := range []interface{ IsUnknown() bool }{m.ClientAuth, m.ClientSecret, m.PrivateKey, m.KeyID, m.Algorithm} {
		if v.IsUnknown() { // which of the others must be set depends on it
			e.incomplete = append(e.incomplete, pointer)
			e.unknown = append(e.unknown, pointer+"/client_secret", pointer+"/private_key")
		}
	}
	return &o
}

// expandOptionalSecret is expandSecret for a secret that may be missing.
func expandOptionalSecret(ctx context.Context, e *expander, pointer string, object types.Object) *target.Secret {
	if object.IsNull() {
		return nil
	}
	secret := expandSecret(ctx, e, pointer, object)
	return &secret
}

func flattenOAuth2(
	ctx context.Context, secrets secretFlattener, of types.ObjectType, o *target.OAuth2Auth,
) types.Object {
	if o == nil {
		return nullObject(of)
	}
	const at = "/auth/oauth2"
	return flattenObject(ctx, secrets.diags, of, oauth2Model{
		TokenURL:       types.StringValue(o.TokenURL),
		ClientID:       types.StringValue(o.ClientID),
		ClientAuth:     flattenOptional(o.ClientAuth),
		ClientSecret:   secrets.optional(ctx, of, "client_secret", at, o.ClientSecret),
		PrivateKey:     secrets.optional(ctx, of, "private_key", at, o.PrivateKey),
		KeyID:          flattenOptional(o.KeyID),
		Algorithm:      flattenOptional(o.Algorithm),
		Scopes:         flattenStrings(ctx, secrets.diags, o.Scopes, types.ListNull(types.StringType)),
		Audience:       flattenOptional(o.Audience),
		CACertificates: flattenOptional(o.CACertificates),
	})
}
