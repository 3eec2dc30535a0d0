package plan

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/backoff"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// Claims are the claim tokens whose runs may be on their way from the database to the pool: the claim may be committed
// before its response arrives, for example if the node was frozen in between. Reclaim leaves such runs alone, or they
// would be in the pool twice.
type Claims struct {
	Node
	store  claimStore
	cancel func(pool.AttemptKey) // in the pool

	mu   sync.Mutex
	open map[run.Token][]pool.AttemptKey // with the attempts that were cancelled since
	// doubt is when a claim last had no response, or a rollback came or went, in Unix milliseconds.
	doubt atomic.Int64
	// refused is why a claim last had no response; nil once another had one.
	refused atomic.Pointer[error]
}

type claimStore interface {
	// Held returns the runs that a node has won under a token; 0: all runs that it has.
	Held(ctx context.Context, id run.NodeID, token run.Token) ([]run.HeldRun, error)
}

// NewClaims returns Claims without a token. cancel cuts off an attempt that is in the pool.
func NewClaims(store claimStore, of Node, cancel func(pool.AttemptKey)) *Claims {
	return &Claims{Node: of, store: store, cancel: cancel, open: map[run.Token][]pool.AttemptKey{}}
}

// Draw returns a new token, which is open until it is closed.
func (t *Claims) Draw() run.Token {
	t.mu.Lock()
	defer t.mu.Unlock()
	token := run.Token(loop.Random())
	t.open[token] = nil
	return token
}

// Close notes that the runs won under tokens are in the pool, or given up.
func (t *Claims) Close(drawn ...run.Token) {
	var cancelled []pool.AttemptKey
	t.mu.Lock()
	for _, token := range drawn {
		cancelled = append(cancelled, t.open[token]...)
		delete(t.open, token)
	}
	t.mu.Unlock()
	for _, attempt := range cancelled {
		t.cancel(attempt)
	}
}

// Cancel cuts off an attempt, if it is on its way to the pool, once it is there.
func (t *Claims) Cancel(attempt pool.AttemptKey) {
	t.mu.Lock()
	for token := range t.open {
		t.open[token] = append(t.open[token], attempt)
	}
	t.mu.Unlock()
	t.cancel(attempt)
}

// IsOpen reports whether a token is open.
func (t *Claims) IsOpen(token run.Token) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, open := t.open[token]
	return open
}

// Won returns the runs that a statement won. If its response was lost, it reads them: it asks until the database responds.
// A poll finds the other fires again.
func (t *Claims) Won(ctx context.Context, id run.NodeID, token run.Token, held []run.HeldRun, cause error) []run.HeldRun {
	if cause == nil {
		t.refused.Store(nil)
		return held
	}
	t.refused.Store(&cause)
	t.Log.WarnContext(ctx, "response of a claim was lost; reading which runs it won", "node", id.String(), "err", cause)
	t.InDoubt()
	// A shutdown does not end it at once, because the runs that were won should be handed back.
	asking := loop.WithoutCancel(ctx)
	_ = loop.Persist(asking, func() (err error) {
		held, err = t.store.Held(asking, id, token)
		return err
	}, func(f backoff.Failure) bool {
		t.Log.Failed(ctx, "read claimed runs", f.Err)
		return ctx.Err() == nil || f.Tries < 3 // otherwise the node leaves without the runs, and other nodes adopt them
	})
	return held
}

// refusedFor is how long a claim without a response says something about now: a node with due fires soon tries again.
const refusedFor = time.Minute

// Refused returns why the latest claim, of the last minute, had no response, such as that the disk of the database is
// full; nil if it had one.
func (t *Claims) Refused() error {
	if why := t.refused.Load(); why != nil && t.Doubted(t.Clock.Now(), refusedFor) {
		return *why
	}
	return nil
}

// InDoubt notes that this node may have more runs in the database than in memory: a claim had no response, or a
// rollback was noticed or resolved.
func (t *Claims) InDoubt() { t.doubt.Store(t.Clock.Now().UnixMilli()) }

// Doubted reports whether InDoubt was called within some time before now.
func (t *Claims) Doubted(now time.Time, within time.Duration) bool {
	return now.Sub(time.UnixMilli(t.doubt.Load())) < within
}
