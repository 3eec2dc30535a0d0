package gate

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/backoff"
	"github.com/carillon-dev/carillon/dispatcher/cache"
)

// tokenCache remembers for a moment which tokens exist, so that not each use costs a query, and repeated unknown tokens
// do not, either.
type tokenCache struct {
	store  Store
	kept   time.Duration
	tokens *cache.Cache[[32]byte, cachedToken]
}

// cachedToken is a look-up, with its token or without one.
type cachedToken struct {
	token access.APIToken
	found bool
	at    time.Time
}

// byHash returns the token with a hash, as the database has it or had it a moment ago.
func (c *tokenCache) byHash(ctx context.Context, hash [32]byte) (access.APIToken, error) {
	now := clock()
	cached, known := c.tokens.Get(hash)
	if known && now.Sub(cached.at).Abs() < c.kept {
		if !cached.found {
			return access.APIToken{}, dispatcher.ErrNotFound
		}
		return cached.token, nil
	}
	token, err := c.store.TokenByHash(ctx, hash)
	if err == nil || errors.Is(err, dispatcher.ErrNotFound) {
		c.tokens.Put(hash, cachedToken{token: token, found: err == nil, at: now})
	}
	return token, err
}

// ForgetTokens clears the cache of tokens: one of them has changed.
func (g *Gate) ForgetTokens() { g.tokens.tokens.Clear() }

// outageTokens are the tokens that were last accepted for a route that also serves while the database is unreachable.
// Metrics are most useful then, and without a response a scraper reports a dead node.
type outageTokens struct {
	mu     sync.Mutex
	byHash map[[32]byte]access.APIToken
}

const (
	// outageTokenLimit bounds the memory of tokens. Few programs read metrics.
	outageTokenLimit = 64
	// outagePatience is how long a known token waits for the database; a scrape gives up after 10 s.
	outagePatience = 2 * time.Second
)

// find returns the token with this hash as the database has it. If the database does not respond, it returns the token
// as the database had it last, with its expiry and the end of its rotation, which the caller checks. A token that was
// revoked or rotated meanwhile is refused as soon as the database responds again.
func (o *outageTokens) find(ctx context.Context, tokens *tokenCache, hash [32]byte, now time.Time) (access.APIToken, error) {
	o.mu.Lock()
	known, isKnown := o.byHash[hash]
	o.mu.Unlock()
	if isKnown {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, outagePatience)
		defer cancel()
	}
	token, err := tokens.byHash(ctx, hash)
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

// tokenUses are the uses of tokens since they were last recorded. No request waits for that.
type tokenUses struct {
	mu sync.Mutex
	at map[string]time.Time // by id; only tokens that exist come here
}

const (
	// useInterval is how often the use of tokens is recorded.
	useInterval = 5 * time.Minute
	// lastUseTime bounds the record that a node makes when it stops.
	lastUseTime = 500 * time.Millisecond
)

// note remembers the use of a token; identities of an issuer have no record.
func (u *tokenUses) note(id string, now time.Time) {
	if id == "" || strings.HasPrefix(id, identityPrefix) {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.at == nil {
		u.at = map[string]time.Time{}
	}
	u.at[id] = now
}

// take removes and returns the uses that are not recorded.
func (u *tokenUses) take() map[string]time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	used := u.at
	u.at = nil
	return used
}

// putBack keeps uses that could not be recorded, unless there are later ones.
func (u *tokenUses) putBack(used map[string]time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.Copy(used, u.at)
	u.at = used
}

// runUses records the use of tokens until ctx ends, and then for the last time.
func (g *Gate) runUses(ctx context.Context) {
	for backoff.Sleep(ctx, useInterval) {
		g.recordUses(ctx)
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastUseTime)
	defer cancel()
	g.recordUses(last)
}

// recordUses writes the known uses of tokens. If that fails, the next one tries again.
func (g *Gate) recordUses(ctx context.Context) {
	used := g.uses.take()
	if len(used) == 0 {
		return
	}
	if err := g.store.UseTokens(ctx, used); err != nil {
		g.log.DebugContext(ctx, "use of tokens not recorded", "err", err)
		g.uses.putBack(used)
	}
}

// callbackKey is the key of callback tokens, which never changes.
type callbackKey struct {
	mu  sync.Mutex
	key []byte
}

func (k *callbackKey) read(ctx context.Context, store Store) (key []byte, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.key == nil {
		k.key, err = store.CallbackKey(ctx)
	}
	return k.key, err
}
