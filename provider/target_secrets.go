package provider

import (
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher/target"
)

// secretRow is a secret that must be there.
func secretRow[P any](name string, field func(P) *target.Secret, text string) *row {
	return partRow(name, field, secretRows, required, text+" Set `reference` or `value`.")
}

// authRows are how requests authenticate. While it is unknown whether one is null, the number of kinds cannot be checked.
var authRows = rowsOf(fresh[target.Auth],
	blockRow("basic", func(a *target.Auth) **target.BasicAuth { return &a.Basic }, basicRows, optional, "HTTP basic authentication. Default: "+
		"none.", decides("")),
	blockRow("bearer", func(a *target.Auth) **target.BearerAuth { return &a.Bearer }, bearerRows, optional, "A bearer token in the header "+
		"`Authorization`. Default: none.", decides("")),
	blockRow("api_key", func(a *target.Auth) **target.APIKeyAuth { return &a.APIKey }, apiKeyRows, optional, "A key in a header or in the "+
		"query. Default: none.", decides("")),
	blockRow("sigv4", func(a *target.Auth) **target.SigV4Auth { return &a.SigV4 }, sigV4Rows, optional, "AWS Signature Version 4, for Lambda "+
		"function URLs and API Gateway. Default: none.", decides("")),
	blockRow("oauth2", func(a *target.Auth) **target.OAuth2Auth { return &a.OAuth2 }, oauth2Rows, optional, "OAuth 2 client credentials: each "+
		"node gets a bearer token from an authorization server, and keeps it until shortly before it expires. Default: none.", decides("")),
)

var basicRows = rowsOf(fresh[target.BasicAuth],
	textRow("username", func(b *target.BasicAuth) *string { return &b.Username }, required, "The user name, without a colon."),
	secretRow("password", func(b *target.BasicAuth) *target.Secret { return &b.Password }, "The password."),
)

var bearerRows = rowsOf(fresh[target.BearerAuth],
	secretRow("token", func(b *target.BearerAuth) *target.Secret { return &b.Token }, "The token."),
)

var apiKeyRows = rowsOf(fresh[target.APIKeyAuth], // exactly one of header and query must be set
	textRow("header", func(a *target.APIKeyAuth) *string { return &a.Header }, optional, "Name of the header, such as `X-Api-Key`. Default: "+
		"the key is in the query.", decides("")),
	textRow("query", func(a *target.APIKeyAuth) *string { return &a.Query }, optional, "Name of the query parameter. Default: the key is in a "+
		"header.", decides("")),
	secretRow("key", func(a *target.APIKeyAuth) *target.Secret { return &a.Key }, "The key."),
)

var sigV4Rows = rowsOf(fresh[target.SigV4Auth],
	textRow("service", func(s *target.SigV4Auth) *string { return &s.Service }, required, "`lambda` for function URLs, `execute-api` for API "+
		"Gateway."),
	textRow("region", func(s *target.SigV4Auth) *string { return &s.Region }, required, "Region of the service, such as `eu-central-1`."),
	blockRow("credentials", func(s *target.SigV4Auth) **target.AWSCredentials { return &s.Credentials }, credentialsRows, optional,
		"Credentials to sign with. Default: those of the node, which it finds as AWS's tools do."),
)

var credentialsRows = rowsOf(fresh[target.AWSCredentials],
	textRow("access_key_id", func(c *target.AWSCredentials) *string { return &c.AccessKeyID }, required, "Id of the access key."),
	secretRow("secret_access_key", func(c *target.AWSCredentials) *target.Secret { return &c.SecretAccessKey }, "The secret access key."),
	blockRow("session_token", func(c *target.AWSCredentials) **target.Secret { return &c.SessionToken }, secretRows, optional, "Session token "+
		"of temporary credentials. Default: none."),
)

// ofClient is what depends on how the client authenticates.
var ofClient = []option{decides(""), hides("client_secret", "private_key")}

var oauth2Rows = rowsOf(fresh[target.OAuth2Auth],
	textRow("token_url", func(o *target.OAuth2Auth) *string { return &o.TokenURL }, required, "URL of the token endpoint. The egress rules of "+
		"nodes and bounds apply to it, as to the URL of a webhook."),
	textRow("client_id", func(o *target.OAuth2Auth) *string { return &o.ClientID }, required, "Id of the client."),
	textsRow("scopes", func(o *target.OAuth2Auth) *[]string { return &o.Scopes }, optional, fmt.Sprintf("Scopes of the token; at most %d. "+
		"Default: the authorization server chooses.", target.MaxScopes)),
	textRow("client_auth", func(o *target.OAuth2Auth) *target.OAuth2ClientAuth { return &o.ClientAuth }, optional, "How the client "+
		"authenticates at the token endpoint: "+either(target.OAuth2ClientAuths)+". Default: `basic`.", ofClient...),
	textRow("key_id", func(o *target.OAuth2Auth) *string { return &o.KeyID }, optional, "Id of the private key, sent as `kid` in the JWT. "+
		"Default: the JWT has none.", ofClient...),
	textRow("algorithm", func(o *target.OAuth2Auth) *target.AssertionAlgorithm { return &o.Algorithm }, optional, "Algorithm that signs the "+
		"JWT: "+either(target.AssertionAlgorithms)+". Default: `RS256`.", ofClient...),
	textRow("audience", func(o *target.OAuth2Auth) *string { return &o.Audience }, optional, "Audience of the token, which some authorization "+
		"servers require. Default: none is sent."),
	textRow("ca_certificates", func(o *target.OAuth2Auth) *string { return &o.CACertificates }, optional, "PEM certificates of the authorities "+
		"to trust for the token endpoint. Default: those of the node's system."),
	blockRow("client_secret", func(o *target.OAuth2Auth) **target.Secret { return &o.ClientSecret }, secretRows, optional, "The client's "+
		"secret, for `basic` and `post`. Set `reference` or `value`. Default: none.", ofClient...),
	blockRow("private_key", func(o *target.OAuth2Auth) **target.Secret { return &o.PrivateKey }, secretRows, optional, "The client's private "+
		"key in PEM, for `private_key_jwt`. Set `reference` or `value`. Default: none.", ofClient...),
)
