package main

import (
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// targets are the servers of the jobs: one that works, one that hangs, and a shared one where one
// path works and another returns 503.
type targets struct {
	working, hanging, shared string // URLs
	servers                  []*http.Server
	ended                    chan struct{} // closed at the end, to release hanging requests

	mu       sync.Mutex
	arrivals map[arrival]time.Time // the first request of each fire
}

// arrival identifies a fire.
type arrival struct {
	app, trigger string
	due          time.Time
}

func newTargets() (*targets, error) {
	t := &targets{ended: make(chan struct{}), arrivals: map[arrival]time.Time{}}
	shared := http.NewServeMux()
	shared.HandleFunc("/working", t.note)
	shared.HandleFunc("/broken", func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	for url, handler := range map[*string]http.Handler{
		&t.working: http.HandlerFunc(t.note), &t.hanging: http.HandlerFunc(t.hang), &t.shared: shared,
	} {
		listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is bound at once or never
		if err != nil {
			t.close()
			return nil, err
		}
		*url = "http://" + listener.Addr().String()
		server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
		t.servers = append(t.servers, server)
		go func() { _ = server.Serve(listener) }() // ends with close
	}
	return t, nil
}

// hang never responds.
func (t *targets) hang(_ http.ResponseWriter, q *http.Request) {
	_, _ = io.Copy(io.Discard, q.Body)
	select {
	case <-q.Context().Done():
	case <-t.ended:
	}
}

// note records the arrival of a request with a scheduled time.
func (t *targets) note(w http.ResponseWriter, q *http.Request) {
	arrived := time.Now()
	_, _ = io.Copy(io.Discard, q.Body)
	due, err := time.Parse(time.RFC3339Nano, q.Header.Get("carillon-scheduled-at"))
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	key := arrival{q.Header.Get("carillon-app"), q.Header.Get("carillon-trigger"), due.UTC()}
	if _, repeated := t.arrivals[key]; !repeated {
		t.arrivals[key] = arrived
	}
}

// forget drops the arrivals so far.
func (t *targets) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.arrivals)
}

// lateness returns how late, in milliseconds, the first requests of an app's fires in [from, until)
// were.
func (t *targets) lateness(app string, from, until time.Time) (late []float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for fire, arrived := range t.arrivals {
		if fire.app == app && !fire.due.Before(from) && fire.due.Before(until) {
			late = append(late, milliseconds(arrived.Sub(fire.due)))
		}
	}
	return late
}

func (t *targets) close() {
	close(t.ended)
	for _, server := range t.servers {
		_ = server.Close()
	}
}
