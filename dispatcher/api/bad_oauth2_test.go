package api_test

import (
	"net/http"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/api"
)

func TestBadClientCredentialsAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	for name, tt := range map[string]struct {
		body     string
		problems []string
	}{
		"oauth2 with nothing": {
			with(t, `{}`, "target", "webhook", "auth", "oauth2"),
			[]string{"/target/webhook/auth/oauth2/client_id required", "/target/webhook/auth/oauth2/client_secret required",
				"/target/webhook/auth/oauth2/token_url required"},
		},
		"oauth2 with everything wrong": {
			with(t, `{"token_url":"http://169.254.169.254/token","client_id":"a b","client_auth":"none","client_secret":{"value":"a\nb"},
				"scopes":["a b","\""],"audience":"a\nb","ca_certificates":"hunter2"}`, "target", "webhook", "auth", "oauth2"),
			[]string{
				"/target/webhook/auth/oauth2/audience text_invalid", "/target/webhook/auth/oauth2/ca_certificates tls_certificate",
				"/target/webhook/auth/oauth2/client_auth enum", "/target/webhook/auth/oauth2/client_id text_invalid",
				"/target/webhook/auth/oauth2/client_secret/value header_value", "/target/webhook/auth/oauth2/scopes/0 text_invalid",
				"/target/webhook/auth/oauth2/scopes/1 text_invalid", "/target/webhook/auth/oauth2/token_url egress_denied",
			},
		},
		"oauth2 with an invalid key": {
			with(t, `{"token_url":"https://example.com/{{.Job}}","client_id":"a","client_auth":"private_key_jwt","algorithm":"HS256","key_id":"a b",
				"private_key":{"value":"hunter2"},"scopes":[]}`, "target", "webhook", "auth", "oauth2"),
			[]string{
				"/target/webhook/auth/oauth2/algorithm enum", "/target/webhook/auth/oauth2/key_id text_invalid",
				"/target/webhook/auth/oauth2/private_key/value secret_form", "/target/webhook/auth/oauth2/scopes required",
				"/target/webhook/auth/oauth2/token_url template_host",
			},
		},
		"oauth2 with a key and a secret": {
			with(t, `{"token_url":"https://example.com/","client_id":"a","client_auth":"private_key_jwt",
				"client_secret":{"reference":"env:SECRET_X"}}`, "target", "webhook", "auth", "oauth2"),
			[]string{"/target/webhook/auth/oauth2 auth_form"},
		},
		"oauth2 with an unused key": {
			with(t, `{"token_url":"https://example.com/","client_id":"a","client_auth":"post","algorithm":"RS256",
				"client_secret":{"reference":"env:SECRET_X"}}`, "target", "webhook", "auth", "oauth2"),
			[]string{"/target/webhook/auth/oauth2 auth_form"},
		},
		"oauth2 without its key": {
			with(t, `{"token_url":"https://example.com/","client_id":"a","client_auth":"private_key_jwt"}`,
				"target", "webhook", "auth", "oauth2"),
			[]string{"/target/webhook/auth/oauth2/private_key required"},
		},
		"a header that oauth2 sets": {
			with(t, `{"url":"https://example.com/","headers":{"authorization":"x"},"auth":{"oauth2":{"token_url":"https://example.com/",
				"client_id":"a","client_secret":{"reference":"env:SECRET_X"}}}}`, "target", "webhook"),
			[]string{"/target/webhook/headers/authorization header_reserved"},
		},
	} {
		t.Log(name)
		w.do("PUT", oneJob, tt.body).refused(http.StatusUnprocessableEntity, tt.problems...)
	}
}
