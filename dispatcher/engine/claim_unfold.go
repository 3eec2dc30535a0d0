package engine

import (
	"context"
	"time"
)

// oldClaim is the age at which a node unfolds a claim of its own: those of its runs that still execute get rows of
// their own. Most attempts are over by then, and the claim with them, so that claims are few and young,
// whatever attempts take.
const oldClaim = 30 * time.Second

// unfoldLoop unfolds this node's old claims, once a window.
func (e *Engine) unfoldLoop(ctx context.Context) {
	e.every(ctx, "unfold claims", e.opts.Window, nil, func(ctx context.Context, now time.Time) error {
		unfolded, err := e.store.UnfoldClaims(ctx, e.fleet.id(), oldClaim, now)
		if unfolded > 0 {
			e.log.DebugContext(ctx, "claims unfolded", "node", e.fleet.id().String(), "count", unfolded)
		}
		return err
	})
}
