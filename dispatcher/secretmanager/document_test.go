package secretmanager_test

import (
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/secretmanager"
)

func TestPickReturnsTextsByKey(t *testing.T) {
	t.Parallel()
	const document = `{"a":"robin","n":12.50,"yes":true,"tls.crt":"dotted","db":{"user":"wren","tls.key":"inner","deep":{"x":"y"}},
		"null":null,"list":[1],"empty":"","line":"last\r\n","unicode":"\u00e4\u003c"}`
	for key, want := range map[string]string{
		"a": "robin", "n": "12.50", "yes": "true", "tls.crt": "dotted", "db.user": "wren", "db.tls.key": "inner", "db.deep.x": "y",
		"line": "last", "unicode": "ä<",
	} {
		if got, err := secretmanager.Pick(document, key); err != nil || got != want {
			t.Errorf("Pick(%s) = %q, %v, want %q", key, got, err, want)
		}
	}
	for _, key := range []string{"none", "null", "list", "db", "empty", "a.b", "db.none", ".", "a."} {
		got, err := secretmanager.Pick(document, key)
		if err == nil || strings.Contains(err.Error(), "robin") || strings.Contains(err.Error(), "wren") {
			t.Errorf("Pick(%s) = %q, %v, want an error without a text of the document", key, got, err)
		}
	}
	for text, want := range map[string]string{"plain\n": "plain", `{"a":1}`: `{"a":1}`} {
		if got, err := secretmanager.Pick(text, ""); err != nil || got != want {
			t.Errorf("Pick of all of %q = %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"plain", "", "null", "[1]"} {
		if got, err := secretmanager.Pick(text, "a"); err == nil {
			t.Errorf("Pick(a) of %q = %q, want an error", text, got)
		}
	}
}
