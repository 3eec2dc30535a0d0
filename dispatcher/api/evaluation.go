package api

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

const (
	// evaluationTimeout bounds the requests that evaluate schedules, including their wait.
	evaluationTimeout = 5 * time.Second
	// verifyTimeout is longer, because it reads the ledger, too.
	verifyTimeout = 30 * time.Second
)

// evaluations bounds the requests that evaluate schedules at one time: one of a token, and half of the
// processors of the node in all.
type evaluations struct {
	slots chan struct{}

	mu     sync.Mutex
	tokens map[string]*tokenTurn
}

// tokenTurn lets one request of a token pass at a time.
type tokenTurn struct {
	taken chan struct{}
	users int // that wait or have it
}

func newEvaluations() *evaluations {
	return &evaluations{slots: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)), tokens: map[string]*tokenTurn{}}
}

// begin waits until a request of a token may evaluate schedules. Call done after it. The context bounds
// the evaluation.
func (e *evaluations) begin(ctx context.Context, token string, timeout time.Duration) (
	bounded context.Context, done func(), err error,
) {
	busy := input.Refuse(input.CodeUnavailable, "too many requests evaluate schedules at this moment; send one after "+
		"another, ask for fewer fire times or a shorter period, or try again in a moment")
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, busy)
	turn, leave := e.turnOf(token)
	select {
	case turn.taken <- struct{}{}:
	case <-ctx.Done():
		leave()
		cancel()
		return nil, nil, context.Cause(ctx)
	}
	end := func() {
		<-turn.taken
		leave()
		cancel()
	}
	select {
	case e.slots <- struct{}{}:
		return ctx, func() { <-e.slots; end() }, nil
	case <-ctx.Done():
		defer end()
		return nil, nil, context.Cause(ctx)
	}
}

// turnOf returns the turn of a token, and what to do when it is not needed any more.
func (e *evaluations) turnOf(token string) (turn *tokenTurn, leave func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	turn, known := e.tokens[token]
	if !known {
		turn = &tokenTurn{taken: make(chan struct{}, 1)}
		e.tokens[token] = turn
	}
	turn.users++
	return turn, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if turn.users--; turn.users == 0 {
			delete(e.tokens, token)
		}
	}
}
