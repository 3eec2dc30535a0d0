package input

import (
	"slices"
	"strings"

	"github.com/agext/levenshtein"
)

// CheckEnum adds a problem unless the value at path is one of the allowed ones. what names it in the message.
func CheckEnum[E ~string](problems *Problems, path, what string, value E, allowed []E) {
	if !slices.Contains(allowed, value) {
		problems.Add(path, CodeEnum, "%s %s is %s", what, Echo(string(value)), NotOneOf(value, allowed))
	}
}

// NotOneOf completes a message about a value that is none of the allowed ones: "not one of gap, skip; did you mean skip?"
func NotOneOf[E ~string](value E, allowed []E) string {
	known := make([]string, len(allowed))
	for i, a := range allowed {
		known[i] = string(a)
	}
	return "not one of " + strings.Join(known, ", ") + DidYouMean(string(value), known)
}

// DidYouMean ends a message about an unknown name: it suggests the known name that is most similar, the first of
// several, or is empty.
func DidYouMean(name string, known []string) string {
	const farthest = 2 // edits; more make it another word
	if len(name) > 64 {
		return ""
	}
	plain := func(s string) string {
		return strings.ReplaceAll(strings.ReplaceAll(strings.ToLower(s), "_", ""), "-", "")
	}
	name = plain(name)
	best, least := "", farthest+1
	for _, candidate := range known {
		if d := levenshtein.Distance(name, plain(candidate), nil); d < least && d < len(candidate) {
			best, least = candidate, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}
