package oidc_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api/oidc"
	"github.com/carillon-dev/carillon/test/oidctest"
)

// idTokens are the claims of a member of the group platform, or of one with that role, in the documented form of each
// provider. They were written by hand, and not taken from a provider.
func idTokens() map[string]map[string]any {
	groups := []string{"everyone", "platform"}
	return map[string]map[string]any{
		"Keycloak": {"groups": groups, "realm_access": map[string]any{"roles": groups}, "preferred_username": "ann"},
		"Okta":     {"groups": groups, "ver": 1, "amr": []string{"pwd"}},
		"Entra ID": {
			"roles": []string{"Carillon.Operator"}, "groups": []string{"6e4a1d1c-2f2b-4d0e-9a45-6a0b8d0f5b11"}, "ver": "2.0",
			"tid": "9122040d-6c67-4c5b-b112-36a304b66dad",
		},
		"Amazon Cognito": {"cognito:groups": groups, "cognito:username": "ann", "token_use": "id"},
		"Google":         {"email": "ann@example.com", "email_verified": true, "hd": "example.com"},
		"Dex":            {"groups": groups, "email": "ann@example.com"},
	}
}

// The rules on the page fit the tokens of their providers, and no others.
func TestRulesOfTheGuideFitTokensOfProviders(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "how-to", "use-the-console.md"))
	if err != nil {
		t.Fatal(err)
	}
	from, w := oidctest.New(t), newTrial(t)
	rows := regexp.MustCompile("(?m)^\\| ([A-Z][A-Za-z ]+) \\| .* \\| `(\\{.*\\})` \\|$").FindAllStringSubmatch(string(page), -1)
	if len(rows) != len(idTokens()) {
		t.Fatalf("the page has %d providers, and this test %d", len(rows), len(idTokens()))
	}
	for _, row := range rows {
		rules, err := oidc.ParseRules([]byte(`{"rules": [{"claims": ` + row[2] + `, "scopes": ["read"]}]}`))
		if err != nil {
			t.Errorf("%s: %v", row[1], err)
			continue
		}
		issuer, err := oidc.New(oidc.Options{Issuer: from.URL, Audience: oidctest.Audience, Rules: rules})
		if err != nil {
			t.Fatal(err)
		}
		got, err := issuer.Identify(t.Context(), from.Sign(jose.RS256, from.Claims("ann", w.now, idTokens()[row[1]])), w.now)
		if err != nil || !got.May(access.ScopeRead) {
			t.Errorf("%s: %s: %+v, %v", row[1], row[2], got, err)
		}
		stranger := map[string]any{"groups": []string{"everyone"}, "email": "bob@example.com", "email_verified": true}
		if got, err := issuer.Identify(t.Context(), from.Sign(jose.RS256, from.Claims("bob", w.now, stranger)), w.now); !isBad(err) {
			t.Errorf("%s: %s lets a stranger in: %+v, %v", row[1], row[2], got, err)
		}
	}
}
