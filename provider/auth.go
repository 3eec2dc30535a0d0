package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
)

type authModel struct {
	Basic  types.Object `tfsdk:"basic"`
	Bearer types.Object `tfsdk:"bearer"`
	APIKey types.Object `tfsdk:"api_key"`
	SigV4  types.Object `tfsdk:"sigv4"`
}

type basicModel struct {
	Username types.String `tfsdk:"username"`
	Password types.Object `tfsdk:"password"`
}

type bearerModel struct {
	Token types.Object `tfsdk:"token"`
}

type apiKeyModel struct {
	Header types.String `tfsdk:"header"`
	Query  types.String `tfsdk:"query"`
	Key    types.Object `tfsdk:"key"`
}

type sigV4Model struct {
	Service     types.String `tfsdk:"service"`
	Region      types.String `tfsdk:"region"`
	Credentials types.Object `tfsdk:"credentials"`
}

type credentialsModel struct {
	AccessKeyID     types.String `tfsdk:"access_key_id"`
	SecretAccessKey types.Object `tfsdk:"secret_access_key"`
	SessionToken    types.Object `tfsdk:"session_token"`
}

func authAttribute() schema.Attribute {
	object := func(description string, attributes map[string]schema.Attribute) schema.Attribute {
		return schema.SingleNestedAttribute{
			Optional: true, MarkdownDescription: description + " Default: none.", Attributes: attributes,
		}
	}
	token := schema.SingleNestedAttribute{
		Optional: true, Attributes: secretAttributes(),
		MarkdownDescription: "Session token of temporary credentials. Default: none.",
	}
	return object("How requests say who calls; one of these. "+dropsUnknown, map[string]schema.Attribute{
		"basic": object("A name and a password.", map[string]schema.Attribute{
			"username": schema.StringAttribute{Required: true, MarkdownDescription: "The name, without a colon."},
			"password": secretAttribute("The password."),
		}),
		"bearer": object("A token in `Authorization`.", map[string]schema.Attribute{
			"token": secretAttribute("The token."),
		}),
		"api_key": object("A key in a header or in the query.", map[string]schema.Attribute{
			"header": schema.StringAttribute{Optional: true, MarkdownDescription: "Name of the header, such as `X-Api-Key`. Default: the key is in the query."},
			"query":  schema.StringAttribute{Optional: true, MarkdownDescription: "Name of the parameter of the query. Default: the key is in a header."},
			"key":    secretAttribute("The key."),
		}),
		"sigv4": object("AWS Signature Version 4, for Lambda function URLs and API Gateway.", map[string]schema.Attribute{
			"service": schema.StringAttribute{Required: true, MarkdownDescription: "`lambda` for function URLs, `execute-api` for API Gateway."},
			"region":  schema.StringAttribute{Required: true, MarkdownDescription: "Region of the service, such as `eu-central-1`."},
			"credentials": schema.SingleNestedAttribute{
				Optional:            true,
				MarkdownDescription: "Whose signature it is. Default: the node's own credentials, which it finds as AWS's tools do.",
				Attributes: map[string]schema.Attribute{
					"access_key_id":     schema.StringAttribute{Required: true, MarkdownDescription: "Id of the access key."},
					"secret_access_key": secretAttribute("The secret access key."),
					"session_token":     token,
				},
			},
		}),
	})
}

func readAuth(ctx context.Context, read *reader, pointer string, object types.Object) *dispatcher.Auth {
	var m authModel
	if !read.object(ctx, pointer, object, &m) {
		return nil
	}
	for _, one := range []types.Object{m.Basic, m.Bearer, m.APIKey, m.SigV4} {
		if one.IsUnknown() {
			read.partial = append(read.partial, pointer) // how many are given
		}
	}
	var a dispatcher.Auth
	var basic basicModel
	if at := pointer + "/basic"; read.object(ctx, at, m.Basic, &basic) {
		a.Basic = &dispatcher.BasicAuth{
			Username: read.text(at+"/username", basic.Username), Password: readSecret(ctx, read, at+"/password", basic.Password),
		}
	}
	var bearer bearerModel
	if at := pointer + "/bearer"; read.object(ctx, at, m.Bearer, &bearer) {
		a.Bearer = &dispatcher.BearerAuth{Token: readSecret(ctx, read, at+"/token", bearer.Token)}
	}
	var key apiKeyModel
	if at := pointer + "/api_key"; read.object(ctx, at, m.APIKey, &key) {
		a.APIKey = &dispatcher.APIKeyAuth{Key: readSecret(ctx, read, at+"/key", key.Key)}
		readWord(read, at+"/header", key.Header, &a.APIKey.Header)
		readWord(read, at+"/query", key.Query, &a.APIKey.Query)
		if key.Header.IsUnknown() || key.Query.IsUnknown() {
			read.partial = append(read.partial, at)
		}
	}
	a.SigV4 = readSigV4(ctx, read, pointer+"/sigv4", m.SigV4)
	return &a
}

func readSigV4(ctx context.Context, read *reader, pointer string, object types.Object) *dispatcher.SigV4Auth {
	var m sigV4Model
	if !read.object(ctx, pointer, object, &m) {
		return nil
	}
	s := dispatcher.SigV4Auth{Service: read.required(pointer+"/service", m.Service), Region: read.required(pointer+"/region", m.Region)}
	var c credentialsModel
	if at := pointer + "/credentials"; read.object(ctx, at, m.Credentials, &c) {
		s.Credentials = &dispatcher.AWSCredentials{
			AccessKeyID:     read.required(at+"/access_key_id", c.AccessKeyID),
			SecretAccessKey: readSecret(ctx, read, at+"/secret_access_key", c.SecretAccessKey),
		}
		if !c.SessionToken.IsNull() {
			token := readSecret(ctx, read, at+"/session_token", c.SessionToken)
			s.Credentials.SessionToken = &token
		}
	}
	return &s
}

// secretObjects makes the values of secrets within an object of a type.
type secretObjects struct {
	diags    *diag.Diagnostics
	versions map[string]types.String
}

// make makes the secret at a pointer, for the attribute of that name.
func (o secretObjects) make(ctx context.Context, of types.ObjectType, name, pointer string, s dispatcher.Secret) types.Object {
	return objectFrom(ctx, o.diags, nested(of, name), newSecret(s, o.versions[pointer+"/"+name]))
}

func newAuth(ctx context.Context, diags *diag.Diagnostics, a *dispatcher.Auth, versions map[string]types.String) types.Object {
	of := nested(webhookType(), "auth")
	if a == nil {
		return types.ObjectNull(of.AttrTypes)
	}
	secrets := secretObjects{diags, versions}
	null := func(name string) types.Object { return types.ObjectNull(nested(of, name).AttrTypes) }
	m := authModel{Basic: null("basic"), Bearer: null("bearer"), APIKey: null("api_key"), SigV4: null("sigv4")}
	if b := a.Basic; b != nil {
		of := nested(of, "basic")
		m.Basic = objectFrom(ctx, diags, of, basicModel{types.StringValue(b.Username), secrets.make(ctx, of, "password", "/auth/basic", b.Password)})
	}
	if b := a.Bearer; b != nil {
		of := nested(of, "bearer")
		m.Bearer = objectFrom(ctx, diags, of, bearerModel{secrets.make(ctx, of, "token", "/auth/bearer", b.Token)})
	}
	if k := a.APIKey; k != nil {
		of := nested(of, "api_key")
		m.APIKey = objectFrom(ctx, diags, of, apiKeyModel{word(k.Header), word(k.Query), secrets.make(ctx, of, "key", "/auth/api_key", k.Key)})
	}
	if s := a.SigV4; s != nil {
		m.SigV4 = newSigV4(ctx, secrets, nested(of, "sigv4"), s)
	}
	return objectFrom(ctx, diags, of, m)
}

func newSigV4(ctx context.Context, secrets secretObjects, of types.ObjectType, s *dispatcher.SigV4Auth) types.Object {
	ofCredentials := nested(of, "credentials")
	m := sigV4Model{types.StringValue(s.Service), types.StringValue(s.Region), types.ObjectNull(ofCredentials.AttrTypes)}
	if c := s.Credentials; c != nil {
		const at = "/auth/sigv4/credentials"
		credentials := credentialsModel{
			AccessKeyID:     types.StringValue(c.AccessKeyID),
			SecretAccessKey: secrets.make(ctx, ofCredentials, "secret_access_key", at, c.SecretAccessKey),
			SessionToken:    types.ObjectNull(nested(ofCredentials, "session_token").AttrTypes),
		}
		if c.SessionToken != nil {
			credentials.SessionToken = secrets.make(ctx, ofCredentials, "session_token", at, *c.SessionToken)
		}
		m.Credentials = objectFrom(ctx, secrets.diags, ofCredentials, credentials)
	}
	return objectFrom(ctx, secrets.diags, of, m)
}
