package engine

import (
	"sync"

	"github.com/carillon-dev/carillon/dispatcher"
)

// tokens are the claim tokens whose runs may be on their way from the database to the pool: the claim
// may be committed and its response not here yet, for example if the node was frozen in between.
// reclaim leaves such runs alone, or they would be in the pool twice.
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

// close notes that the runs won under tokens are in the pool, or given up.
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
