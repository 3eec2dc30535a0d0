package dispatcher_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Jobs cannot set the tags that trust policies distinguish apps by, in any case, because AWS ignores case.
func TestSessionTagsOfCarillonAreReserved(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for n := range 49 {
		many[fmt.Sprint("t", n)] = "x"
	}
	for name, tt := range map[string]struct {
		tags map[string]string
		code string // empty if allowed
	}{
		"none":             {nil, ""},
		"others":           {map[string]string{"team": "crm", "carillon": "x", "x-carillon:app": "y"}, ""},
		"the app":          {map[string]string{"carillon:app": "b"}, input.CodeSessionTag},
		"in another case":  {map[string]string{"Carillon:JOB": "b"}, input.CodeSessionTag},
		"any reserved tag": {map[string]string{"carillon:tenant": "b"}, input.CodeSessionTag},
		"tags of AWS":      {map[string]string{"aws:PrincipalTag": "b"}, input.CodeSessionTag},
		"too many":         {many, input.CodeTooMany},
		"no name":          {map[string]string{"": "b"}, input.CodeLabelFormat},
	} {
		var l target.Lambda
		l.SetDefaults()
		l.Function, l.AssumeRole = "f", &target.AssumeRole{RoleARN: "arn:aws:iam::123456789012:role/r", SessionTags: tt.tags}
		var problems input.Problems
		errors.As(l.Validate(), &problems)
		if tt.code == "" && len(problems) > 0 || tt.code != "" && (len(problems) != 1 ||
			!slices.ContainsFunc(problems, func(p input.Problem) bool { return p.Code == tt.code })) {
			t.Errorf("%s: problems = %v, want %q", name, problems, tt.code)
		}
	}
}
