package oidc_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api/oidc"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/test/oidctest"
)

func TestRulesAreReadStrictly(t *testing.T) {
	t.Parallel()
	for text, path := range map[string]string{
		`{"rules":[{"claims":{"sub":"a"},"scopes":["read"],"apps":["b"]}]}`: "",
		`{"rules":[{"claims":{"sub":"a"},"scopes":["metrics","admin"]}]}`:   "",
		`{"rules":[]}`: "/rules",
		`{}`:           "/rules",
		`{"rules":[{"claims":{},"scopes":["read"]}]}`:                         "/rules/0/claims",
		`{"rules":[{"claims":{"sub":"**"},"scopes":["read"]}]}`:               "/rules/0/claims",
		`{"rules":[{"claims":{"sub":"a"}}]}`:                                  "/rules/0/scopes",
		`{"rules":[{"claims":{"sub":"a"},"scopes":["all"]}]}`:                 "/rules/0/scopes/0",
		`{"rules":[{"claims":{"sub":"a"},"scopes":["admin"],"apps":["b"]}]}`:  "/rules/0/scopes/0",
		`{"rules":[{"claims":{"sub":"a"},"scopes":["read"],"apps":["B !"]}]}`: "/rules/0/apps/0",
		`{"rules":[{"claims":{"sub":"a"},"scope":["read"]}]}`:                 "?",
		`{"rules":[{"claims":{"sub":["a"]},"scopes":["read"]}]}`:              "?",
		`{"rules":[]} {}`: "?",
		`[]`:              "?",
		``:                "?",
	} {
		_, err := oidc.ParseRules([]byte(text))
		var problems input.Problems
		switch {
		case path == "" && err != nil:
			t.Errorf("%s gives %v", text, err)
		case path == "?" && (err == nil || errors.As(err, &problems)):
			t.Errorf("%s gives %v, want that it is not such a file", text, err)
		case strings.HasPrefix(path, "/") && (!errors.As(err, &problems) || problems[0].Path != path):
			t.Errorf("%s gives %v, want a problem with %s", text, err, path)
		}
	}
}

func TestFirstRuleThatFitsDecides(t *testing.T) {
	t.Parallel()
	from := oidctest.New(t)
	w := newTrial(t)
	const claims = `{"repository": "acme/*", "environment": "prod*", "groups": "ops", "protected": "true", "level": "3"}`
	parsed, err := oidc.ParseRules([]byte(`{"rules": [{"claims": ` + claims + `, "scopes": ["write"], "apps": ["a"]},
		{"claims": {"repository": "*/b*l*ing"}, "scopes": ["read"]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	issuer, err := oidc.New(oidc.Options{Issuer: from.URL, Audience: oidctest.Audience, Rules: parsed})
	if err != nil {
		t.Fatal(err)
	}
	all := func() map[string]any {
		return map[string]any{"repository": "acme/billing", "environment": "production", "groups": []string{"dev", "ops"},
			"protected": true, "level": 3}
	}
	for name, tt := range map[string]struct {
		claim string
		value any
		scope access.Scope // empty: no rule fits
	}{
		"all claims fit":                     {"x", 1, access.ScopeWrite},
		"a pattern does not fit":             {"environment", "staging", access.ScopeRead},
		"a list without the value":           {"groups", []string{"dev"}, access.ScopeRead},
		"a claim is missing":                 {"groups", nil, access.ScopeRead},
		"a number is another":                {"level", 33, access.ScopeRead},
		"a truth is another":                 {"protected", false, access.ScopeRead},
		"an object in place of a text":       {"groups", map[string]string{"ops": "ops"}, access.ScopeRead},
		"a list in a list":                   {"groups", []any{[]any{"ops"}}, access.ScopeRead},
		"a repository that begins alike":     {"repository", "acmeevil/x", ""},
		"a part is missing":                  {"repository", "x/bing", ""},
		"parts in another order":             {"repository", "x/bingl", ""},
		"nothing between the fixed parts":    {"repository", "x/bl-ing", access.ScopeRead},
		"a repository that is a list of one": {"repository", []string{"acme/x"}, access.ScopeWrite},
	} {
		values := all()
		values[tt.claim] = tt.value
		got, err := issuer.Identify(t.Context(), from.Sign(jose.ES256, from.Claims("x", w.now, values)), w.now)
		switch {
		case tt.scope == "" && !isBad(err):
			t.Errorf("%s: %+v, %v, want that no rule fits", name, got, err)
		case tt.scope != "" && (err != nil || !got.May(tt.scope)):
			t.Errorf("%s: %+v, %v, want scope %s", name, got, err, tt.scope)
		}
	}
}
