package console

import (
	"github.com/carillon-dev/carillon/dispatcher/access"
)

// Update reports whether golden files are written.
func Update() bool { return *update }

// Action is the declaration of an action.
type Action struct {
	Path  string
	Needs access.Scope
}

// Actions lists all actions.
func Actions() (all []Action) {
	for _, a := range actions() {
		all = append(all, Action{a.path, a.needs})
	}
	return all
}

// Screens lists the paths of all screens.
func Screens() (all []string) {
	for _, s := range screens() {
		all = append(all, s.path)
	}
	return all
}

// MostFollowers is the bound of the streams of changes.
const MostFollowers = mostFollowers
