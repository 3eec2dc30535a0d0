package secretmanager

import (
	"errors"
	"fmt"
)

// Kind says why a secret could not be read.
type Kind int

// Kinds of errors.
const (
	// Unreachable is a manager that does not respond, responds too slowly, or has trouble of its own, or that the node cannot
	// prove itself to now, because its credentials have expired or its clock is wrong.
	Unreachable Kind = iota
	// Throttled is a manager that gets too many requests.
	Throttled
	// Denied is a secret that the node may not read.
	Denied
	// Missing is a secret, or a version of it, that does not exist or was deleted.
	Missing
	// Unusable is a secret that is not what its reference says, or a request that the manager does not understand.
	Unusable
)

// String returns the name of a kind, in one word.
func (k Kind) String() string {
	return map[Kind]string{
		Unreachable: "unreachable", Throttled: "throttled", Denied: "denied", Missing: "missing", Unusable: "unusable",
	}[k]
}

// Temporary tells whether the secret is likely to be as it was, although it cannot be read now.
func (k Kind) Temporary() bool { return k == Unreachable || k == Throttled }

// Error is why a secret could not be read.
type Error struct {
	Kind    Kind
	Manager string // such as AWS Secrets Manager
	// Code is the manager's own code of the error, or what it responded in our words.
	Code string
}

// Error says what the manager did.
func (e *Error) Error() string {
	what := map[Kind]string{
		Unreachable: "%s does not respond as it should (%s)",
		Throttled:   "%s gets too many requests (%s)",
		Denied:      "%s does not let this node read it (%s)",
		Missing:     "%s does not have it (%s)",
		Unusable:    "%s has it, but it cannot be used (%s)",
	}[e.Kind]
	return fmt.Sprintf(what, e.Manager, e.Code)
}

// IsTemporary tells whether an error is an Error whose Kind is temporary.
func IsTemporary(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Kind.Temporary()
}
