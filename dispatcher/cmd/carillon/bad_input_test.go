package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/test/badinput"
)

// The first word of a wanted text is the exit code; the others must be in the output. No output shows a password.
func TestRowsOfBadConfigurationEndTheNode(t *testing.T) {
	t.Parallel()
	rows, err := badinput.Rows(badinput.Node)
	if err != nil || len(rows) == 0 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for _, row := range rows {
		out, errs, code := carillon(t, strings.Fields(row.Input), strings.Fields(row.Where)...)
		want := strings.Fields(row.Expected)
		if strconv.Itoa(code) != want[0] || strings.Contains(out+errs, "hunter2") {
			t.Errorf("rows.md:%d: exit %d, %s%s; want %s and no password", row.Line, code, out, errs, want[0])
		}
		for _, word := range want[1:] {
			if !strings.Contains(errs, word) {
				t.Errorf("rows.md:%d: the message does not name %q: %s", row.Line, word, errs)
			}
		}
	}
}
