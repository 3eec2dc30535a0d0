package api

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
)

// outageTokens are the tokens that were last accepted for a route that also serves while the database is
// unreachable. Metrics are wanted most then, and a scraper that gets no response sees a dead node instead.
type outageTokens struct {
	mu     sync.Mutex
	byHash map[[32]byte]access.APIToken
}

const (
	// outageTokenLimit bounds the memory that tokens can take. Few programs read metrics.
	outageTokenLimit = 64
	// outagePatience is how long a known token waits for the database; a scrape gives up after 10 s.
	outagePatience = 2 * time.Second
)

// find returns the token with this hash as the database has it. If the database does not respond, it returns
// the token as the database had it last, with its expiry and the end of its rotation, which the caller checks. A token
// that was revoked or rotated meanwhile is refused as soon as the database responds again.
func (o *outageTokens) find(ctx context.Context, store Store, hash [32]byte, now time.Time) (access.APIToken, error) {
	o.mu.Lock()
	known, isKnown := o.byHash[hash]
	o.mu.Unlock()
	if isKnown {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, outagePatience)
		defer cancel()
	}
	token, err := store.TokenByHash(ctx, hash)
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.byHash) >= outageTokenLimit {
		maps.DeleteFunc(o.byHash, func(_ [32]byte, old access.APIToken) bool { return old.Expired(now) })
	}
	switch {
	case errors.Is(err, dispatcher.ErrNotFound):
		delete(o.byHash, hash)
	case err != nil && isKnown:
		return known, nil
	case err == nil && (isKnown || len(o.byHash) < outageTokenLimit):
		o.byHash[hash] = token
	}
	return token, err
}
