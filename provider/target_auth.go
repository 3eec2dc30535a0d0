package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/target"
)

// authModel is the attribute auth of a webhook. At most one of its kinds is set.
type authModel struct {
	Basic  types.Object `tfsdk:"basic"`
	Bearer types.Object `tfsdk:"bearer"`
	APIKey types.Object `tfsdk:"api_key"`
	SigV4  types.Object `tfsdk:"sigv4"`
	OAuth2 types.Object `tfsdk:"oauth2"`
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
	return optionalObject("How requests authenticate; exactly one of these. Default: none.",
		map[string]schema.Attribute{
			"basic": optionalObject("HTTP basic authentication. Default: none.", map[string]schema.Attribute{
				"username": requiredString("The user name, without a colon."),
				"password": secretAttribute("The password."),
			}),
			"bearer": optionalObject("A bearer token in the header `Authorization`. Default: none.", map[string]schema.Attribute{
				"token": secretAttribute("The token."),
			}),
			"api_key": optionalObject("A key in a header or in the query. Default: none.", map[string]schema.Attribute{
				"header": optionalString("Name of the header, such as `X-Api-Key`. Default: the key is in the query."),
				"query":  optionalString("Name of the query parameter. Default: the key is in a header."),
				"key":    secretAttribute("The key."),
			}),
			"sigv4":  sigV4Attribute(),
			"oauth2": oauth2Attribute(),
		})
}

func sigV4Attribute() schema.Attribute {
	return optionalObject("AWS Signature Version 4, for Lambda function URLs and API Gateway. Default: none.",
		map[string]schema.Attribute{
			"service": requiredString("`lambda` for function URLs, `execute-api` for API Gateway."),
			"region":  requiredString("Region of the service, such as `eu-central-1`."),
			"credentials": optionalObject("Credentials to sign with. Default: those of the node, which it finds as AWS's tools do.",
				map[string]schema.Attribute{
					"access_key_id":     requiredString("Id of the access key."),
					"secret_access_key": secretAttribute("The secret access key."),
					"session_token":     optionalObject("Session token of temporary credentials. Default: none.", secretAttributes()),
				}),
		})
}

func expandAuth(ctx context.Context, e *expander, pointer string, object types.Object) *target.Auth {
	var m authModel
	if !e.object(ctx, pointer, object, &m) {
		return nil
	}
	for _, kind := range []types.Object{m.Basic, m.Bearer, m.APIKey, m.SigV4, m.OAuth2} {
		if kind.IsUnknown() { // it may turn out to be null, so the number of kinds cannot be checked yet
			e.incomplete = append(e.incomplete, pointer)
		}
	}
	var a target.Auth
	var basic basicModel
	if at := pointer + "/basic"; e.object(ctx, at, m.Basic, &basic) {
		a.Basic = &target.BasicAuth{
			Username: e.string(at+"/username", basic.Username),
			Password: expandSecret(ctx, e, at+"/password", basic.Password),
		}
	}
	var bearer bearerModel
	if at := pointer + "/bearer"; e.object(ctx, at, m.Bearer, &bearer) {
		a.Bearer = &target.BearerAuth{Token: expandSecret(ctx, e, at+"/token", bearer.Token)}
	}
	var key apiKeyModel
	if at := pointer + "/api_key"; e.object(ctx, at, m.APIKey, &key) {
		a.APIKey = &target.APIKeyAuth{Key: expandSecret(ctx, e, at+"/key", key.Key)}
		expandOptional(e, at+"/header", key.Header, &a.APIKey.Header)
		expandOptional(e, at+"/query", key.Query, &a.APIKey.Query)
		if key.Header.IsUnknown() || key.Query.IsUnknown() { // exactly one must be set
			e.incomplete = append(e.incomplete, at)
		}
	}
	a.SigV4 = expandSigV4(ctx, e, pointer+"/sigv4", m.SigV4)
	a.OAuth2 = expandOAuth2(ctx, e, pointer+"/oauth2", m.OAuth2)
	return &a
}

func expandSigV4(ctx context.Context, e *expander, pointer string, object types.Object) *target.SigV4Auth {
	var m sigV4Model
	if !e.object(ctx, pointer, object, &m) {
		return nil
	}
	s := target.SigV4Auth{
		Service: e.required(pointer+"/service", m.Service),
		Region:  e.required(pointer+"/region", m.Region),
	}
	var c credentialsModel
	if at := pointer + "/credentials"; e.object(ctx, at, m.Credentials, &c) {
		s.Credentials = &target.AWSCredentials{
			AccessKeyID:     e.required(at+"/access_key_id", c.AccessKeyID),
			SecretAccessKey: expandSecret(ctx, e, at+"/secret_access_key", c.SecretAccessKey),
		}
		s.Credentials.SessionToken = expandOptionalSecret(ctx, e, at+"/session_token", c.SessionToken)
	}
	return &s
}

func flattenAuth(ctx context.Context, secrets secretFlattener, of types.ObjectType, a *target.Auth) types.Object {
	if a == nil {
		return nullObject(of)
	}
	basic, bearer, apiKey := objectType(of, "basic"), objectType(of, "bearer"), objectType(of, "api_key")
	m := authModel{
		Basic: nullObject(basic), Bearer: nullObject(bearer), APIKey: nullObject(apiKey),
		SigV4:  flattenSigV4(ctx, secrets, objectType(of, "sigv4"), a.SigV4),
		OAuth2: flattenOAuth2(ctx, secrets, objectType(of, "oauth2"), a.OAuth2),
	}
	if b := a.Basic; b != nil {
		m.Basic = flattenObject(ctx, secrets.diags, basic, basicModel{
			Username: types.StringValue(b.Username),
			Password: secrets.object(ctx, basic, "password", "/auth/basic", b.Password),
		})
	}
	if b := a.Bearer; b != nil {
		m.Bearer = flattenObject(ctx, secrets.diags, bearer, bearerModel{
			Token: secrets.object(ctx, bearer, "token", "/auth/bearer", b.Token),
		})
	}
	if k := a.APIKey; k != nil {
		m.APIKey = flattenObject(ctx, secrets.diags, apiKey, apiKeyModel{
			Header: flattenOptional(k.Header),
			Query:  flattenOptional(k.Query),
			Key:    secrets.object(ctx, apiKey, "key", "/auth/api_key", k.Key),
		})
	}
	return flattenObject(ctx, secrets.diags, of, m)
}

func flattenSigV4(
	ctx context.Context, secrets secretFlattener, of types.ObjectType, s *target.SigV4Auth,
) types.Object {
	if s == nil {
		return nullObject(of)
	}
	credentials := objectType(of, "credentials")
	m := sigV4Model{
		Service:     types.StringValue(s.Service),
		Region:      types.StringValue(s.Region),
		Credentials: nullObject(credentials),
	}
	if c := s.Credentials; c != nil {
		const at = "/auth/sigv4/credentials"
		m.Credentials = flattenObject(ctx, secrets.diags, credentials, credentialsModel{
			AccessKeyID:     types.StringValue(c.AccessKeyID),
			SecretAccessKey: secrets.object(ctx, credentials, "secret_access_key", at, c.SecretAccessKey),
			SessionToken:    secrets.optional(ctx, credentials, "session_token", at, c.SessionToken),
		})
	}
	return flattenObject(ctx, secrets.diags, of, m)
}
