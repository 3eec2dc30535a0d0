package main

import (
	"os"
	"strings"
	"testing"
)

// Without this test, only the next mutant run would notice that a line that a mutant edits has changed.
func TestMutantsApplyToTheSource(t *testing.T) {
	t.Parallel()
	for _, m := range mutants {
		for _, e := range m.edits {
			source, err := os.ReadFile("../../" + e.file)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(source), e.old); n != 1 {
				t.Errorf("mutant %s: %s contains %q %d times, want once; adapt the mutant", m.name, e.file, e.old, n)
			}
			if e.old == e.new {
				t.Errorf("mutant %s changes nothing in %s", m.name, e.file)
			}
		}
	}
}
