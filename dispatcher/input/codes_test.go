package input_test

import (
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

func TestEachCodeHasATitleOfItsOwn(t *testing.T) {
	t.Parallel()
	titles := map[string]string{}
	last := ""
	for _, row := range input.Codes {
		if row.Code <= last {
			t.Errorf("%s stands after %s, so that it is not found", row.Code, last)
		}
		last = row.Code
		if row.Title == "" || strings.HasSuffix(row.Title, ".") || titles[row.Title] != "" {
			t.Errorf("title of %s is %q, want one of its own without a full stop (%s has it)", row.Code, row.Title, titles[row.Title])
		}
		titles[row.Title] = row.Code
		if got := input.RowOf(row.Code); got != row {
			t.Errorf("row of %s is %+v", row.Code, got)
		}
	}
	if got := input.RowOf("of_a_newer_api"); got != (input.CodeRow{}) {
		t.Errorf("row of an unknown code is %+v, want none", got)
	}
}
