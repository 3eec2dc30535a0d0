package access

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Sessions are the stays of people in the console. A login and a logout are entries of the audit log.
type Sessions interface {
	// CreateSession stores a session, and ends those that are too many: of its token, and of all; see MaxTokenSessions and MaxSessions.
	CreateSession(ctx context.Context, session Session, change input.Change) error
	// Session returns the session with a hash, with its token. If a person uses it, it records that, once in SessionRenewal at
	// most; a page that refreshes itself is no use. ErrNotFound: there is none, it has ended at now, or its token was revoked.
	Session(ctx context.Context, hash [32]byte, now time.Time, used bool) (Session, error)
	// EndSession ends one session; it is no error if it has ended.
	EndSession(ctx context.Context, id string, change input.Change) error
	// EndSessions ends all sessions of a token, or of an identity, and returns how many there were.
	EndSessions(ctx context.Context, tokenID string, change input.Change) (int, error)
}
