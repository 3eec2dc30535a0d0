package access

import "time"

// Session is the login of one person in the console.
type Session struct {
	// ID is random. It is not a secret: the audit log names it.
	ID string
	// Hash is the SHA-256 of the secret in the browser.
	Hash [32]byte
	// Token has the permissions of the session. An API token is read again for each use, so that the session ends
	// with it. An identity of an issuer is not stored: the session keeps the permissions from the rules.
	Token APIToken
	// Rules names the rules that permitted it to an identity; empty if the token is stored.
	Rules string
	// CreatedAt is when the person signed in, and UsedAt when the session was used last, to within a minute.
	CreatedAt, UsedAt time.Time
	// EndsAt is when the session ends, however much it is used.
	EndsAt time.Time
}

// The ends and bounds of sessions.
const (
	// SessionIdle is how long a session may stay unused, and SessionLife how long it may last.
	SessionIdle = time.Hour
	SessionLife = 12 * time.Hour
	// SessionRenewal is the least time between two records of the use of a session.
	SessionRenewal = time.Minute
	// MaxTokenSessions bounds the sessions of one token. A further login ends the one with the oldest use.
	MaxTokenSessions = 20
	// MaxSessions bounds the sessions of all tokens. A further login ends the session with the oldest use: if more
	// than half belong to app-bound tokens, one of the apps with the most sessions, else one of the other tokens. So
	// an app cannot lock others out, and people of all apps cannot lock those of one out.
	MaxSessions = 10_000
)

// Ended reports whether the session has ended at now.
func (s Session) Ended(now time.Time) bool {
	return !now.Before(s.EndsAt) || !now.Before(s.UsedAt.Add(SessionIdle)) || s.Token.Expired(now)
}

// LoginRequest is one login of a person at an issuer of identities.
type LoginRequest struct {
	// State, Nonce and Verifier are random.
	State, Nonce, Verifier string
	// Callback is the URL that the issuer sends the browser to.
	Callback string
}
