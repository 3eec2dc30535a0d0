package db

import (
	"context"
	"sync"

	"github.com/carillon-dev/carillon/dispatcher"
)

// hub is the notifications of a database that one process has to itself.
type hub struct {
	mu        sync.Mutex
	listeners map[*listener]struct{}
}

// listener is one call of listen.
type listener struct {
	heard  chan dispatcher.Notification
	missed chan struct{} // some did not fit into heard
}

func newHub() *hub { return &hub{listeners: map[*listener]struct{}{}} }

// publish never waits. A listener that is far behind loses notifications, as the contract allows, and
// hears that anything may have changed instead.
func (h *hub) publish(notifications []dispatcher.Notification) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.listeners {
		for _, notification := range notifications {
			select {
			case l.heard <- notification:
			default:
				select {
				case l.missed <- struct{}{}:
				default:
				}
			}
		}
	}
}

// listen calls notification until ctx ends, first with an empty one: earlier ones were not heard.
func (h *hub) listen(ctx context.Context, notification func(dispatcher.Notification)) {
	mine := &listener{heard: make(chan dispatcher.Notification, 256), missed: make(chan struct{}, 1)}
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
		case <-mine.missed:
			notification(dispatcher.Notification{})
		case one := <-mine.heard:
			notification(one)
		}
	}
}
