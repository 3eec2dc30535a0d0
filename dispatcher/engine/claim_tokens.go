package engine

import (
	"sync"

	"github.com/carillon-dev/carillon/dispatcher"
)

// tokens are those under which runs may be on their way from the database to the pool: the claim is
// committed, perhaps, and its response not here yet, as when the node was frozen in between. Such runs
// are not for reclaim, or they would be in the pool twice.
type tokens struct {
	mu   sync.Mutex
	open map[dispatcher.Token]bool
}

func newTokens() *tokens { return &tokens{open: map[dispatcher.Token]bool{}} }

// draw returns a new token, which is open until it is closed.
func (t *tokens) draw() dispatcher.Token {
	t.mu.Lock()
	defer t.mu.Unlock()
	token := dispatcher.Token(random63())
	t.open[token] = true
	return token
}

// close says that what was won under tokens is in the pool, or given up.
func (t *tokens) close(drawn ...dispatcher.Token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, token := range drawn {
		delete(t.open, token)
	}
}

func (t *tokens) isOpen(token dispatcher.Token) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open[token]
}
