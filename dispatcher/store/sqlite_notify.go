package store

import (
	"context"
	"sync"

	"github.com/carillon-dev/carillon/dispatcher"
)

// hub is the notifications of a database that one process has to itself.
type hub struct {
	mu        sync.Mutex
	listeners map[chan dispatcher.Notification]struct{}
}

func newHub() *hub { return &hub{listeners: map[chan dispatcher.Notification]struct{}{}} }

// publish never waits: a listener that is far behind loses notifications, as the contract allows.
// Those it has yet to read make it look at the database in any case.
func (h *hub) publish(notifications []dispatcher.Notification) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for listener := range h.listeners {
		for _, notification := range notifications {
			select {
			case listener <- notification:
			default:
			}
		}
	}
}

// listen calls notification until ctx ends, first with an empty one: earlier ones were not heard.
func (h *hub) listen(ctx context.Context, notification func(dispatcher.Notification)) {
	mine := make(chan dispatcher.Notification, 256)
	h.mu.Lock()
	h.listeners[mine] = struct{}{}
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.listeners, mine)
	}()
	notification(dispatcher.Notification{})
	for {
		select {
		case <-ctx.Done():
			return
		case one := <-mine:
			notification(one)
		}
	}
}
