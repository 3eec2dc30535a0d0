package store

import (
	"context"
	"sync"

	"github.com/carillon-dev/carillon/dispatcher"
)

// hub is the notifications of a database that one process has to itself.
type hub struct {
	mu        sync.Mutex
	listeners map[chan dispatcher.Hint]struct{}
}

func newHub() *hub { return &hub{listeners: map[chan dispatcher.Hint]struct{}{}} }

// publish never waits: for a listener that is far behind, hints are lost, as the contract
// allows. What it has still to read makes it look at the database in any case.
func (h *hub) publish(hints []dispatcher.Hint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for listener := range h.listeners {
		for _, hint := range hints {
			select {
			case listener <- hint:
			default:
			}
		}
	}
}

// listen calls hint until ctx ends, first with an empty one: what happened before was not heard.
func (h *hub) listen(ctx context.Context, hint func(dispatcher.Hint)) {
	mine := make(chan dispatcher.Hint, 256)
	h.mu.Lock()
	h.listeners[mine] = struct{}{}
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.listeners, mine)
	}()
	hint(dispatcher.Hint{})
	for {
		select {
		case <-ctx.Done():
			return
		case one := <-mine:
			hint(one)
		}
	}
}
