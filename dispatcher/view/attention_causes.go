package view

import (
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// What else asks for attention, as the alerts of an operator name it: each of these says in words what the cause is.
type (
	// SilentGroup is an endpoint group that enabled jobs call and that has no endpoint for them.
	SilentGroup struct {
		App   string `json:"app"`
		Group string `json:"group"`
		// Draining is how many endpoints it has: operators drain all of them.
		Draining int `json:"draining"`
		// LeftAt is when the latest endpoint that had registered expired or left; nil: none has.
		LeftAt *time.Time `json:"left_at,omitempty"`
		// Jobs is how many enabled jobs call it, and Job is one of them.
		Jobs int    `json:"jobs"`
		Job  string `json:"job"`
	}

	// CredentialFailure is a job whose attempts fail because of a secret.
	CredentialFailure struct {
		App    string           `json:"app"`
		Job    string           `json:"job"`
		Reason CredentialReason `json:"reason"`
		// Runs is how many of the latest runs failed or wait so, at least if it is MaxCredentialRuns.
		Runs int `json:"runs"`
		// Run is the latest of them; Class, HTTPStatus and Error say how it failed, and At when, zero: it is not over.
		Run        string    `json:"run"`
		Class      run.Class `json:"class"`
		HTTPStatus int       `json:"http_status,omitempty"`
		Error      string    `json:"error,omitempty"`
		At         time.Time `json:"at,omitzero"`
		// Secrets are what the job or its group sends, by where it is declared: a reference, or "stored" for a value that the
		// database keeps. There is never a value.
		Secrets map[string]string `json:"secrets"`
	}

	// EndingCertificate is a client certificate that nodes present to targets and that ends soon, or has ended.
	EndingCertificate struct {
		App string `json:"app"`
		// Job presents it; empty: Group does.
		Job    string    `json:"job,omitempty"`
		Group  string    `json:"group,omitempty"`
		EndsAt time.Time `json:"ends_at"`
	}

	// LateRetention is history that should be gone.
	LateRetention struct {
		// App keeps less than others, and its history is looked at on its own; empty: no app keeps what there is.
		App string `json:"app,omitempty"`
		// Retention is how long it is kept, and Oldest where what there is begins, to within a day.
		Retention input.Duration `json:"retention"`
		Oldest    time.Time      `json:"oldest"`
		// Behind is for how long it should have been gone.
		Behind input.Duration `json:"behind"`
	}
)

const (
	// ForgottenAfter is for how long a pause without an end counts as one that somebody meant.
	ForgottenAfter = 7 * 24 * time.Hour

	// RetentionLate is how far retention may be behind: nodes remove history by days, now and then.
	RetentionLate = 24 * time.Hour
	// MaxCredentialRuns bounds the runs that are looked through for those that fail because of a secret.
	MaxCredentialRuns = 500
)

// CredentialReason is why an attempt failed that a secret is to blame for.
type CredentialReason string

// The reasons.
const (
	CredentialUnreadable CredentialReason = "unreadable" // a node cannot read or use a secret
	CredentialRefused    CredentialReason = "refused"    // the target responded 401 or 403
	CredentialOAuth2     CredentialReason = "oauth2"     // the token endpoint gave no token, or the target refuses it
	CredentialAWS        CredentialReason = "aws"        // the node has no credentials that AWS accepts
)

// CredentialReasons are all of them.
var CredentialReasons = []CredentialReason{CredentialUnreadable, CredentialRefused, CredentialOAuth2, CredentialAWS}

// CredentialReasonOf returns why a secret is to blame for an attempt that failed with a class and an HTTP status; empty: it is
// not.
func CredentialReasonOf(class run.Class, httpStatus int) CredentialReason {
	const unauthorized, forbidden = 401, 403
	switch {
	case class == run.ClassSecret:
		return CredentialUnreadable
	case class == run.ClassOAuth2:
		return CredentialOAuth2
	case class == run.ClassCredentials:
		return CredentialAWS
	case class == run.ClassHTTP4xx && (httpStatus == unauthorized || httpStatus == forbidden):
		return CredentialRefused
	}
	return ""
}

// SecretNames returns what secrets are, by where they are declared, without any value; see CredentialFailure.
func SecretNames(secrets map[string]target.Secret) map[string]string {
	names := make(map[string]string, len(secrets))
	for at, secret := range secrets {
		if names[at] = secret.Reference; secret.Reference == "" {
			names[at] = "stored"
		}
	}
	return names
}
