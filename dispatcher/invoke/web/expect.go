package web

import (
	"context"
	"io"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/carillon-dev/carillon/dispatcher/target"
)

const (
	// mostExpectations bounds the cache of compiled expressions.
	mostExpectations = 1000
	// quickMatch is how large body times expression may be to be matched at once, which takes a few
	// milliseconds at most. The program of an expression without a repeat count is no larger than
	// its text.
	quickMatch = 1 << 18
	// checkEvery is how many characters are matched between two looks at the deadline: some 2 ms for
	// the largest program.
	checkEvery = 64
)

// expectations matches responses. Expressions are compiled at first use, and the latest are kept.
type expectations struct {
	mu       sync.Mutex
	compiled map[string]*regexp.Regexp
	// long are the apps that match something long. Each does so once at a time, so that all other
	// attempts of an app wait for it, and none of another app.
	long map[string]*turn
}

// turn lets one goroutine pass at a time.
type turn struct {
	taken chan struct{}
	users int // that wait or have it
}

func newExpectations() *expectations {
	return &expectations{compiled: map[string]*regexp.Regexp{}, long: map[string]*turn{}}
}

// match reports whether a body matches an expression of an app. The error is that of ctx, which ends
// a match within milliseconds, or that of an invalid expression, which Validate refuses.
func (e *expectations) match(ctx context.Context, app, text string, body []byte) (bool, error) {
	compiled, err := e.get(text)
	if err != nil {
		return false, err
	}
	_, literal := compiled.LiteralPrefix()
	if literal || len(body)*len(text) <= quickMatch && !strings.Contains(text, "{") {
		return compiled.Match(body), nil
	}
	done, err := e.wait(ctx, app)
	if err != nil {
		return false, err
	}
	defer done()
	r := &interruptible{ctx: ctx, rest: body}
	matched := compiled.MatchReader(r)
	return matched && r.err == nil, r.err
}

// wait waits for the turn of an app. Call done after it.
func (e *expectations) wait(ctx context.Context, app string) (done func(), err error) {
	e.mu.Lock()
	t, ok := e.long[app]
	if !ok {
		t = &turn{taken: make(chan struct{}, 1)}
		e.long[app] = t
	}
	t.users++
	e.mu.Unlock()
	leave := func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(e.long, app)
		}
	}
	select {
	case t.taken <- struct{}{}:
		return func() { <-t.taken; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// get returns a compiled expression. It compiles without the lock, which all apps share.
func (e *expectations) get(text string) (*regexp.Regexp, error) {
	e.mu.Lock()
	compiled, ok := e.compiled[text]
	e.mu.Unlock()
	if ok {
		return compiled, nil
	}
	compiled, err := target.CompileExpectation(text)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.compiled) >= mostExpectations {
		clear(e.compiled)
	}
	e.compiled[text] = compiled
	return compiled, nil
}

// interruptible reads a body and ends early when its context does.
type interruptible struct {
	ctx  context.Context //nolint:containedctx // it lives as long as one match
	rest []byte
	read int
	err  error
}

// ReadRune is that of io.RuneReader.
func (r *interruptible) ReadRune() (char rune, size int, err error) {
	if r.read++; r.read%checkEvery == 0 && r.err == nil {
		r.err = r.ctx.Err()
	}
	if len(r.rest) == 0 || r.err != nil {
		return 0, 0, io.EOF
	}
	char, size = utf8.DecodeRune(r.rest)
	r.rest = r.rest[size:]
	return char, size, nil
}
