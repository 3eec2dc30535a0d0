package store_test

import (
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/store"
)

// An earlier build stored [] for a token that is bound to no app. It is shown as one that can be declared again as it is.
func TestTokenOfAnEarlierBuildCanBePutAsItIsShown(t *testing.T) {
	t.Parallel()
	s := open(t, newFile(t))
	must(t, s.CreateToken(t.Context(), access.APIToken{
		ID: "1", Name: "ci", Hash: [32]byte{1}, TokenSpec: access.TokenSpec{Scopes: []access.Scope{access.ScopeRead}},
	}))
	must(t, store.Exec(t.Context(), s, `UPDATE api_tokens SET apps = '[]'`))
	token, err := s.Token(t.Context(), "ci")
	must(t, err)
	if err := token.Validate(); err != nil || token.Apps != nil {
		t.Errorf("the token is bound to %v, and %v; want it bound to none, and valid", token.Apps, err)
	}
}
