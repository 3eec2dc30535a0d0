package binding_test

import (
	"testing"

	"github.com/carillon-dev/carillon/provider/binding"
)

func TestDocumentsAreComparedAsJSON(t *testing.T) {
	t.Parallel()
	for _, one := range []struct {
		a, b string
		same bool
	}{
		{`{"a": 1.0, "b": [10e-1]}`, `{"b":[1],"a":1}`, true},
		{`1200`, `1.2E+3`, true},
		{`-0.0`, `0`, true},
		{`-0.50`, `-5e-1`, true},
		{`1e999999999`, `1.0e999999999`, true},
		{`1e99999999999999999999`, `1e99999999999999999999`, true},
		{`9007199254740993`, `9007199254740992`, false},
		{`1`, `"1"`, false},
		{`1`, `-1`, false},
		{`10`, `1`, false},
		{`0.1`, `0.01`, false},
		{`{`, `{`, false},
		{`1 2`, `1`, false},
	} {
		if got := (binding.DocumentText{}).Equivalent(t.Context(), one.a, one.b); got != one.same {
			t.Errorf("%s and %s are the same: %t, want %t", one.a, one.b, got, one.same)
		}
	}
}
