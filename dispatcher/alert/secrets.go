package alert

import (
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Secrets returns the secrets of a by their JSON pointers in it.
func (a Alert) Secrets() map[string]target.Secret {
	all := map[string]target.Secret{}
	for path, s := range a.Destination.Secrets() {
		all[target.DestinationAt+path] = s
	}
	return all
}

// WithSecrets returns a copy of a in which the secrets in with, by their JSON pointers in a, replace those of a.
func (a Alert) WithSecrets(with map[string]target.Secret) Alert {
	below := make(map[string]target.Secret, len(with))
	for path, s := range with {
		below[strings.TrimPrefix(path, target.DestinationAt)] = s
	}
	a.Destination = a.Destination.WithSecrets(below)
	return a
}
