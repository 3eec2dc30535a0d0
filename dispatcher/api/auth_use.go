package api

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"
)

// tokenUses are the tokens that were used since the last time that this was recorded. No request waits for that.
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

// take returns the uses that are not recorded, and forgets them.
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
func (a *API) runUses(ctx context.Context) {
	ticker := time.NewTicker(useInterval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-ticker.C:
			a.recordUses(ctx)
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastUseTime)
	defer cancel()
	a.recordUses(last)
}

// recordUses writes what is known of the use of tokens. If that fails, the next one tries again.
func (a *API) recordUses(ctx context.Context) {
	used := a.uses.take()
	if len(used) == 0 {
		return
	}
	if err := a.store.UseTokens(ctx, used); err != nil {
		a.log.DebugContext(ctx, "use of tokens not recorded", "err", err)
		a.uses.putBack(used)
	}
}
