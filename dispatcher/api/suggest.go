package api

import (
	"maps"
	"slices"
	"strings"
)

// didYouMean suggests the known name that is most similar to name, or returns nothing.
func didYouMean[V any](name string, known map[string]V) string {
	const farthest = 2 // edits; more make it another word
	if len(name) > 64 {
		return ""
	}
	plain := func(s string) string { return strings.ReplaceAll(strings.ToLower(s), "_", "") }
	name = plain(name)
	best, least := "", farthest+1
	for _, candidate := range slices.Sorted(maps.Keys(known)) {
		if d := distance(name, plain(candidate)); d < least && d < len(candidate) {
			best, least = candidate, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

// distance is the number of insertions, deletions and replacements that turn b into a (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
