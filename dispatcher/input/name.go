package input

import (
	"regexp"
	"strings"
)

var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// IsName tells whether a text is a name that a client may choose.
func IsName(text string) bool { return namePattern.MatchString(text) }

// CheckName reports a name that does not match ^[a-z0-9][a-z0-9_-]{0,62}$, the rule for every
// name that a client chooses.
func CheckName(problems *Problems, path, name string) {
	if !IsName(name) {
		problems.Add(path, CodeNameFormat,
			"name %s does not match ^[a-z0-9][a-z0-9_-]{0,62}$: 1 to 63 of a-z, 0-9, _ and -, beginning with a letter or digit", Echo(name))
	}
}

// FoldName returns the name of an app with _ for -. No two apps have the same, because variables name apps so.
func FoldName(app string) string { return strings.ReplaceAll(app, "-", "_") }
