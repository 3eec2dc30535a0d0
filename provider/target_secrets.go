package provider

import (
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/provider/binding"
)

// secretRow is a secret that must be there.
func secretRow[P any](name string, field func(P) *target.Secret, text string) *binding.Row {
	return binding.Part(name, binding.Nested(field, binding.Secrets), binding.Required, text+" Set `reference` or `value`.")
}

// authRows are how requests authenticate. While it is unknown whether one is null, the number of kinds cannot be checked.
var authRows = binding.Of(binding.Fresh[target.Auth],
	binding.Block("basic", binding.Nested(func(a *target.Auth) **target.BasicAuth { return &a.Basic }, basicRows), binding.Optional,
		"HTTP basic authentication. Default: none.", binding.Decides("")),
	binding.Block("bearer", binding.Nested(func(a *target.Auth) **target.BearerAuth { return &a.Bearer }, bearerRows), binding.Optional,
		"A bearer token in the header `Authorization`. Default: none.", binding.Decides("")),
	binding.Block("api_key", binding.Nested(func(a *target.Auth) **target.APIKeyAuth { return &a.APIKey }, apiKeyRows), binding.Optional,
		"A key in a header or in the query. Default: none.", binding.Decides("")),
	binding.Block("sigv4", binding.Nested(func(a *target.Auth) **target.SigV4Auth { return &a.SigV4 }, sigV4Rows), binding.Optional,
		"AWS Signature Version 4, for Lambda function URLs and API Gateway. Default: none.", binding.Decides("")),
	binding.Block("oauth2", binding.Nested(func(a *target.Auth) **target.OAuth2Auth { return &a.OAuth2 }, oauth2Rows), binding.Optional,
		"OAuth 2 client credentials: each node gets a bearer token from an authorization server, and keeps it until shortly before "+
			"it expires. Default: none.", binding.Decides("")),
)

var basicRows = binding.Of(binding.Fresh[target.BasicAuth],
	binding.Text("username", func(b *target.BasicAuth) *string { return &b.Username }, binding.Required, "The user name, without a colon."),
	secretRow("password", func(b *target.BasicAuth) *target.Secret { return &b.Password }, "The password."),
)

var bearerRows = binding.Of(binding.Fresh[target.BearerAuth],
	secretRow("token", func(b *target.BearerAuth) *target.Secret { return &b.Token }, "The token."),
)

var apiKeyRows = binding.Of(binding.Fresh[target.APIKeyAuth], // exactly one of header and query must be set
	binding.Text("header", func(a *target.APIKeyAuth) *string { return &a.Header }, binding.Optional, "Name of the header, such as "+
		"`X-Api-Key`. Default: the key is in the query.", binding.Decides("")),
	binding.Text("query", func(a *target.APIKeyAuth) *string { return &a.Query }, binding.Optional, "Name of the query parameter. "+
		"Default: the key is in a header.", binding.Decides("")),
	secretRow("key", func(a *target.APIKeyAuth) *target.Secret { return &a.Key }, "The key."),
)

var sigV4Rows = binding.Of(binding.Fresh[target.SigV4Auth],
	binding.Text("service", func(s *target.SigV4Auth) *string { return &s.Service }, binding.Required, "`lambda` for function URLs, "+
		"`execute-api` for API Gateway."),
	binding.Text("region", func(s *target.SigV4Auth) *string { return &s.Region }, binding.Required, "Region of the service, such as "+
		"`eu-central-1`."),
	binding.Block("credentials", binding.Nested(func(s *target.SigV4Auth) **target.AWSCredentials { return &s.Credentials },
		credentialsRows), binding.Optional, "Credentials to sign with. Default: those of the node, which it finds as AWS's tools do."),
)

var credentialsRows = binding.Of(binding.Fresh[target.AWSCredentials],
	binding.Text("access_key_id", func(c *target.AWSCredentials) *string { return &c.AccessKeyID }, binding.Required,
		"Id of the access key."),
	secretRow("secret_access_key", func(c *target.AWSCredentials) *target.Secret { return &c.SecretAccessKey }, "The secret access key."),
	binding.Block("session_token", binding.Nested(func(c *target.AWSCredentials) **target.Secret { return &c.SessionToken },
		binding.Secrets), binding.Optional, "Session token of temporary credentials. Default: none."),
)

// ofClient is what depends on how the client authenticates.
var ofClient = []binding.Option{binding.Decides(""), binding.Hides("client_secret", "private_key")}

var oauth2Rows = binding.Of(binding.Fresh[target.OAuth2Auth],
	binding.Text("token_url", func(o *target.OAuth2Auth) *string { return &o.TokenURL }, binding.Required,
		"URL of the token endpoint. The egress rules of nodes and bounds apply to it, as to the URL of a webhook."),
	binding.Text("client_id", func(o *target.OAuth2Auth) *string { return &o.ClientID }, binding.Required, "Id of the client."),
	binding.Texts("scopes", func(o *target.OAuth2Auth) *[]string { return &o.Scopes }, binding.Optional, fmt.Sprintf(
		"Scopes of the token; at most %d. Default: the authorization server chooses.", target.MaxScopes)),
	binding.Text("client_auth", func(o *target.OAuth2Auth) *target.OAuth2ClientAuth { return &o.ClientAuth }, binding.Optional,
		"How the client authenticates at the token endpoint: "+either(target.OAuth2ClientAuths)+". Default: `basic`.", ofClient...),
	binding.Text("key_id", func(o *target.OAuth2Auth) *string { return &o.KeyID }, binding.Optional, "Id of the private key, sent as "+
		"`kid` in the JWT. Default: the JWT has none.", ofClient...),
	binding.Text("algorithm", func(o *target.OAuth2Auth) *target.AssertionAlgorithm { return &o.Algorithm }, binding.Optional,
		"Algorithm that signs the JWT: "+either(target.AssertionAlgorithms)+". Default: `RS256`.", ofClient...),
	binding.Text("audience", func(o *target.OAuth2Auth) *string { return &o.Audience }, binding.Optional, "Audience of the token, "+
		"which some authorization servers require. Default: none is sent."),
	binding.Text("ca_certificates", func(o *target.OAuth2Auth) *string { return &o.CACertificates }, binding.Optional,
		"PEM certificates of the authorities to trust for the token endpoint. Default: those of the node's system."),
	binding.Block("client_secret", binding.Nested(func(o *target.OAuth2Auth) **target.Secret { return &o.ClientSecret }, binding.Secrets),
		binding.Optional, "The client's secret, for `basic` and `post`. Set `reference` or `value`. Default: none.", ofClient...),
	binding.Block("private_key", binding.Nested(func(o *target.OAuth2Auth) **target.Secret { return &o.PrivateKey }, binding.Secrets),
		binding.Optional, "The client's private key in PEM, for `private_key_jwt`. Set `reference` or `value`. Default: none.", ofClient...),
)
