package main

import (
	"context"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// receiver is the target of all jobs. It responds to /short at once, and to /long after a random time.
type receiver struct {
	url     string
	server  *http.Server
	pace    pace
	hurried chan struct{} // closed to make every response immediate

	mu       sync.Mutex
	arrivals map[fire][]*arrival
	inFlight int // long attempts
	most     time.Duration
}

// fire is one scheduled time of a trigger.
type fire struct {
	job, trigger string
	scheduled    int64 // Unix milliseconds
}

// arrival is one attempt as the receiver saw it.
type arrival struct {
	attempt   int
	event     string
	long      bool
	at, ended time.Time
	cut       bool // the caller closed the connection before the response
}

func startReceiver(ctx context.Context, p pace) (*receiver, error) {
	r := &receiver{pace: p, hurried: make(chan struct{}), arrivals: map[fire][]*arrival{}}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r.url = "http://" + listener.Addr().String()
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	go func() { _ = r.server.Serve(listener) }() // ends with close
	return r, nil
}

func (r *receiver) close() { _ = r.server.Close() }

// hurry lets all long attempts end now.
func (r *receiver) hurry() { close(r.hurried) }

// draw returns a random duration for a long attempt: mostly tens of seconds, sometimes up to five minutes.
func (r *receiver) draw() time.Duration {
	ratio := float64(r.pace.longest) / float64(r.pace.shortest)
	return time.Duration(float64(r.pace.shortest) * math.Pow(ratio, rand.Float64()))
}

// ServeHTTP records an attempt, and responds.
func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	_, _ = io.Copy(io.Discard, q.Body) // a closed connection shows below
	h := q.Header
	a := &arrival{event: h.Get("webhook-id"), long: q.URL.Path == "/long", at: time.Now()}
	a.attempt, _ = strconv.Atoi(h.Get("carillon-attempt"))
	at, _ := time.Parse(time.RFC3339Nano, h.Get("carillon-scheduled-at"))
	key := fire{h.Get("carillon-job"), h.Get("carillon-trigger"), at.UnixMilli()}
	r.mu.Lock()
	r.arrivals[key] = append(r.arrivals[key], a)
	if a.long {
		r.inFlight++
	}
	r.mu.Unlock()
	if a.long {
		r.hold(q.Context(), a)
	}
	if a.cut {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(http.StatusNoContent)
}

// hold delays a long attempt.
func (r *receiver) hold(ctx context.Context, a *arrival) {
	cut := false
	select {
	case <-time.After(r.draw()):
	case <-r.hurried:
	case <-ctx.Done():
		cut = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inFlight--
	a.ended, a.cut = time.Now(), cut
	if !cut {
		r.most = max(r.most, a.ended.Sub(a.at))
	}
}

// count returns the number of requests, and of long attempts in flight.
func (r *receiver) count() (requests, long int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, all := range r.arrivals {
		requests += len(all)
	}
	return requests, r.inFlight
}
