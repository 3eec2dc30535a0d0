package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTestsAreCountedAndSkipsSummedUpByReason(t *testing.T) {
	t.Parallel()
	const events = `
{"Action":"output","Package":"github.com/carillon-dev/carillon/a","Test":"TestA","Output":"  a_test.go:3: SKIPPED: no pgbouncer\n"}
{"Action":"skip","Package":"github.com/carillon-dev/carillon/a","Test":"TestA","Elapsed":0}
{"Action":"output","Package":"github.com/carillon-dev/carillon/a","Test":"TestB","Output":"    b_test.go:3: SKIPPED: no pgbouncer\n"}
{"Action":"skip","Package":"github.com/carillon-dev/carillon/a","Test":"TestB","Elapsed":0}
a line of a compiler
{"Action":"output","Package":"github.com/carillon-dev/carillon/a","Test":"TestC/one","Output":"    c_test.go:9: got 1, want 2\n"}
{"Action":"fail","Package":"github.com/carillon-dev/carillon/a","Test":"TestC/one","Elapsed":0.5}
{"Action":"fail","Package":"github.com/carillon-dev/carillon/a","Test":"TestC","Elapsed":1.5}
{"Action":"fail","Package":"github.com/carillon-dev/carillon/a","Elapsed":2}
{"Action":"fail","Package":"github.com/carillon-dev/carillon/b","Elapsed":2}
{"Action":"pass","Package":"github.com/carillon-dev/carillon/c","Test":"TestD","Elapsed":3}
{"Action":"pass","Package":"github.com/carillon-dev/carillon/c","Elapsed":4}
`
	got, err := read(strings.NewReader(events))
	if err != nil {
		t.Fatal(err)
	}
	if got.Passed != 1 || got.Failed != 3 || got.Skipped != 2 {
		t.Errorf("got %d passed, %d failed and %d skipped, want 1, 3 and 2", got.Passed, got.Failed, got.Skipped)
	}
	if diff := cmp.Diff([]string{"a TestC/one", "b (no test of its own failed)"}, got.failures); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"no pgbouncer": 2}, got.skips); diff != "" {
		t.Errorf("skips (-want +got):\n%s", diff)
	}
	var printed strings.Builder
	got.print(&printed)
	for _, want := range []string{
		"\n     3.0 s  c TestD\n     1.5 s  a TestC\n", "\n      2  no pgbouncer\n", "\n1 passed, 3 failed, 2 skipped\n",
	} {
		if !strings.Contains(printed.String(), want) {
			t.Errorf("the summary lacks %q:\n%s", want, &printed)
		}
	}
}
