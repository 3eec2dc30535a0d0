package access

import "time"

// Session is the stay of one person in the console.
type Session struct {
	// ID is drawn at random. It is no secret: the audit log names it.
	ID string
	// Hash is the SHA-256 of what the browser keeps.
	Hash [32]byte
	// Token is what the session may do. Of an API token it is what the store has of it now, so that a session ends when its token
	// is revoked or expires. An identity of an issuer is not stored: the session keeps what the rules permitted to it.
	Token APIToken
	// Rules tell which rules permitted that to an identity; empty: the token is stored.
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
	// MaxTokenSessions are those of one token. The one that was not used for the longest time gives way.
	MaxTokenSessions = 20
	// MaxSessions are those of all tokens. A further login succeeds and ends another session: if those of tokens that are bound to
	// apps are more than half, of the apps that have the most, else of the other tokens; the one that was not used for the longest
	// time. So neither can an app keep others out, nor can people of all apps keep those of one out.
	MaxSessions = 10_000
)

// Ended tells whether the session has ended at now.
func (s Session) Ended(now time.Time) bool {
	return !now.Before(s.EndsAt) || !now.Before(s.UsedAt.Add(SessionIdle)) || s.Token.Expired(now)
}

// LoginRequest is one login of a person at an issuer of identities.
type LoginRequest struct {
	// State, Nonce and Verifier are random.
	State, Nonce, Verifier string
	// Callback is the URL to which the issuer sends the browser.
	Callback string
}
