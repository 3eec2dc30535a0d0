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
	lastUseTime = 2 * time.Second
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

// badTokenLog has each bad token that is known by name logged once a minute, and the others once a minute for each reason.
type badTokenLog struct {
	mu sync.Mutex
	at map[string]time.Time
}

const (
	badTokenInterval = time.Minute
	badTokenLimit    = 1000
)

// due tells whether a line about key is due.
func (b *badTokenLog) due(key string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if last, is := b.at[key]; is && now.Sub(last) < badTokenInterval {
		return false
	}
	if b.at == nil || len(b.at) >= badTokenLimit {
		b.at = map[string]time.Time{}
	}
	b.at[key] = now
	return true
}

// logBadToken says why the token of r was refused, which its sender is not told.
func (a *API) logBadToken(r *request) {
	if a.badTokens.due(r.token.ID+" "+r.bad, r.at) {
		by := r.by()
		a.log.WarnContext(r.Context(), "bad token refused", "reason", r.bad, "token", by.Actor, "token_id", by.TokenID,
			"address", by.Address, "request_id", r.id)
	}
}
