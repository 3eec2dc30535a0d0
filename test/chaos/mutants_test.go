package main

import (
	"os"
	"strings"
	"testing"
)

// Anyone who changes a line that a mutant breaks learns so here, and not in the hour of a campaign.
func TestMutantsFitTheSource(t *testing.T) {
	t.Parallel()
	for _, m := range mutants {
		for _, e := range m.edits {
			source, err := os.ReadFile("../../" + e.file)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(source), e.old); n != 1 {
				t.Errorf("mutant %s: %s has %q %d times, want once; fit the mutant to it", m.name, e.file, e.old, n)
			}
		}
	}
}
