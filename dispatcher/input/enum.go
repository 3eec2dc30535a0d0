package input

import (
	"slices"

	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// DidYouMean ends a message about an unknown name, as schedule.DidYouMean does.
func DidYouMean(name string, known []string) string { return schedule.DidYouMean(name, known) }

// CheckEnum adds a problem unless the value at path is one of the allowed ones. what names it in the message.
func CheckEnum[E ~string](problems *Problems, path, what string, value E, allowed []E) {
	if !slices.Contains(allowed, value) {
		problems.Add(path, CodeEnum, "%s %s is %s", what, Echo(string(value)), schedule.NotOneOf(value, allowed))
	}
}
