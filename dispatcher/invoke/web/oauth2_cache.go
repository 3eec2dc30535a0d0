package web

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Times and bounds of tokens. A token is refreshed in the background at the end of its refresh margin, while attempts
// go on with it, so that a short outage of a token endpoint does no harm.
const (
	tokenTimeout    = 10 * time.Second // for one request to a token endpoint
	leastMargin     = 10 * time.Second // before a token expires; never more than half its life
	marginShare     = 5                // of its life: a token is refreshed when 80 % of that have passed
	failureAge      = time.Second      // how long a failure of a token endpoint counts for other attempts
	mostFailureAge  = time.Minute      // the same if its Retry-After is longer
	refreshInterval = 10 * time.Second // the same while the old token is still valid
	refusalInterval = time.Minute      // between tokens that are dropped because a target refused them
	mostTokens      = 1024             // clients whose tokens a node keeps
	mostTokensOfApp = 128              // of one app, so that no app displaces the tokens of others
)

// tokens holds the OAuth 2 tokens of a node. Attempts of the same client share a token, and at most one request for it is
// in flight.
type tokens struct {
	mu      sync.Mutex
	of      map[tokenKey]*tokenState
	closed  bool
	flights sync.WaitGroup
}

// tokenKey is an app, and a hash of everything that a token depends on.
type tokenKey struct {
	app string
	sum [sha256.Size]byte
}

// tokenState is the state of one client's tokens on a node.
type tokenState struct {
	token   *token  // the latest; nil: none yet, or a target has refused it
	flight  *flight // nil: no request is in flight
	failure error   // of the latest request, until retryAt
	retryAt time.Time
	dropped time.Time // when a target refused a token, and it was dropped
	used    time.Time
}

// token is a token that an authorization server issued.
type token struct {
	text      string
	refreshAt time.Time
	expiresAt time.Time
}

// newToken returns a token that was requested at a time. Its life counts from then, so it is never overestimated.
func newToken(text string, askedAt time.Time, life time.Duration) *token {
	margin := min(max(life/marginShare, leastMargin), life/2)
	return &token{text: text, refreshAt: askedAt.Add(life - margin), expiresAt: askedAt.Add(life)}
}

// flight is a request for a token. The other fields are set when done is closed.
type flight struct {
	cancel context.CancelFunc
	done   chan struct{}
	token  *token
	err    error
}

// fetchFunc asks a token endpoint for a token.
type fetchFunc func(context.Context) (*token, error)

var errTokensClosed = errors.New("the node is shutting down")

func newTokens() *tokens { return &tokens{of: map[tokenKey]*tokenState{}} }

// close ends all requests for tokens, and waits for them.
func (t *tokens) close() {
	t.mu.Lock()
	t.closed = true
	for _, s := range t.of {
		if s.flight != nil {
			s.flight.cancel()
		}
	}
	t.mu.Unlock()
	t.flights.Wait()
}

// get returns a token that has not expired. If there is none, it asks for one with fetch, or waits for the request of
// another attempt. ctx bounds the wait, but not the request, because others may wait for it.
func (t *tokens) get(ctx context.Context, key tokenKey, fetch fetchFunc) (*token, error) {
	current, f, err := t.known(ctx, key, time.Now(), fetch)
	if current != nil || err != nil {
		return current, err
	}
	select {
	case <-f.done:
		return f.token, f.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// known returns the token at now, or the request to wait for. It begins one if it is time for that.
func (t *tokens) known(ctx context.Context, key tokenKey, now time.Time, fetch fetchFunc) (*token, *flight, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, nil, errTokensClosed
	}
	s := t.of[key]
	if s == nil {
		t.evict(key.app)
		s = &tokenState{}
		t.of[key] = s
	}
	s.used = now
	paused := now.Before(s.retryAt)
	if s.valid(now) {
		if !paused && s.flight == nil && !now.Before(s.token.refreshAt) {
			t.start(ctx, s, fetch)
		}
		return s.token, nil, nil
	}
	if s.flight == nil && paused {
		return nil, nil, stillPaused(s.failure, s.retryAt.Sub(now))
	}
	if s.flight == nil {
		t.start(ctx, s, fetch)
	}
	return nil, s.flight, nil
}

func (s *tokenState) valid(now time.Time) bool {
	return s.token != nil && now.Before(s.token.expiresAt)
}

// start begins a request for a token. t.mu is held.
func (t *tokens) start(ctx context.Context, s *tokenState, fetch fetchFunc) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), tokenTimeout)
	f := &flight{cancel: cancel, done: make(chan struct{})}
	s.flight = f
	t.flights.Go(func() {
		defer cancel()
		defer t.land(s, f)
		f.err = errors.New("the request panicked") // unless it returns
		f.token, f.err = fetch(bounded)
	})
}

// land notes the result of a request for a token, even if it panicked: attempts wait for it.
func (t *tokens) land(s *tokenState, f *flight) {
	if r := recover(); r != nil {
		f.token, f.err = nil, fmt.Errorf("panic: %v", r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s.flight = nil
	if f.err == nil {
		s.token, s.failure, s.retryAt = f.token, nil, time.Time{}
	} else {
		now := time.Now()
		pause := pauseAfter(f.err)
		if s.valid(now) { // no attempt waits
			pause = max(pause, min(refreshInterval, s.token.expiresAt.Sub(now)/2))
		}
		s.failure, s.retryAt = f.err, now.Add(pause)
	}
	close(f.done)
}

// pauseAfter returns how long a token endpoint is not asked again after a failure.
func pauseAfter(err error) time.Duration {
	if failure, is := errors.AsType[*TokenError](err); is && failure.RetryAfter != nil {
		return min(max(*failure.RetryAfter, failureAge), mostFailureAge)
	}
	return failureAge
}

// stillPaused returns a failure for a later attempt, with the remaining wait.
func stillPaused(err error, left time.Duration) error {
	var failure *TokenError
	if !errors.As(err, &failure) || failure.RetryAfter == nil {
		return err
	}
	later := *failure
	later.RetryAfter = &left
	return &later
}

// refuse notes that a target responded with 401 to a token. It reports whether the next attempt has another one:
// because refuse drops the token, or because it was replaced already. Tokens of a client are dropped only once in
// refusalInterval, so that a target that refuses every token does not make each attempt ask for one.
func (t *tokens) refuse(key tokenKey, refused *token) (replaced bool) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.of[key]
	switch {
	case s == nil || s.token != refused:
		return true
	case now.Sub(s.dropped) < refusalInterval:
		return false
	}
	s.token, s.dropped = nil, now
	return true
}

// evict makes room for a client of an app: if the app has its share, it drops the client of this app that was unused
// for longest, and otherwise that of any app. Clients with a request in flight stay. t.mu is held.
func (t *tokens) evict(app string) {
	var oldestOwn, oldest *tokenKey
	older := func(than *tokenKey, key tokenKey) *tokenKey {
		if than == nil || t.of[key].used.Before(t.of[*than].used) {
			return &key
		}
		return than
	}
	count := 0
	for key, s := range t.of {
		if key.app == app {
			count++
		}
		if s.flight != nil {
			continue
		}
		if oldest = older(oldest, key); key.app == app {
			oldestOwn = older(oldestOwn, key)
		}
	}
	switch {
	case count >= mostTokensOfApp && oldestOwn != nil:
		delete(t.of, *oldestOwn)
	case len(t.of) >= mostTokens && oldest != nil:
		delete(t.of, *oldest)
	}
}
