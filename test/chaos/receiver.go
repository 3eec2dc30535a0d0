package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// receiver is the target of all jobs, at two addresses. A request is on disk before the response is
// prepared, and the response before it is sent.
type receiver struct {
	url, far string
	server   *http.Server
	log      *history.Log
	requests atomic.Int64
	hurried  chan struct{} // closed to make every response immediate
	caller   *caller
}

// startReceiver starts a receiver at the address of most jobs and at the far one.
func startReceiver(ctx context.Context, dir string, addresses ...string) (*receiver, error) {
	log, err := history.Create(dir, history.Hits, true)
	if err != nil {
		return nil, err
	}
	callbacks, err := history.Create(dir, history.Callbacks, true)
	if err != nil {
		return nil, err
	}
	r := &receiver{log: log, hurried: make(chan struct{}), caller: &caller{log: callbacks}}
	urls := []*string{&r.url, &r.far}
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	for i, address := range addresses {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			return nil, errors.Join(err, r.server.Close())
		}
		*urls[i] = "http://" + listener.Addr().String()
		go func() { _ = r.server.Serve(listener) }() // ends with close
	}
	return r, nil
}

func (r *receiver) close() {
	_ = r.server.Close()
	r.caller.calls.Wait()
}

// hurry makes the receiver respond at once from now on, also to requests in flight, so that a run
// does not wait for them after its faults.
func (r *receiver) hurry() { close(r.hurried) }

// wait waits, and reports whether the caller is still connected.
func (r *receiver) wait(q *http.Request, d time.Duration) bool {
	select {
	case <-time.After(d):
	case <-r.hurried:
	case <-q.Context().Done():
		return false
	}
	return true
}

// ServeHTTP responds by path: /ok at once, /slow after up to a second, /long often later than the next fire,
// /flaky sometimes with an error or not at all, /unavailable every other time with an error, /hang every
// other time never, /moody and /dead with errors that depend on the fire, and /accept by a callback.
func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	hit := history.Hit{At: time.Now(), Request: r.requests.Add(1)}
	body, _ := io.ReadAll(q.Body) // the payload's number shows a truncated body
	var payload struct{ Put int }
	_ = json.Unmarshal(body, &payload)
	h := q.Header
	hit.App, hit.Job, hit.Trigger, hit.Kind, hit.Event = h.Get("carillon-app"), h.Get("carillon-job"),
		h.Get("carillon-trigger"), h.Get("carillon-kind"), h.Get("webhook-id")
	hit.Attempt, _ = strconv.Atoi(h.Get("carillon-attempt"))
	hit.ScheduledAt, _ = time.Parse(time.RFC3339Nano, h.Get("carillon-scheduled-at"))
	hit.Put, hit.Run = payload.Put, h.Get("carillon-run")
	if r.log.Append(hit) != nil {
		panic(http.ErrAbortHandler) // no response without a record
	}
	status, takes := http.StatusNoContent, time.Duration(0)
	switch q.URL.Path {
	case "/slow":
		takes = rand.N(time.Second)
	case "/long":
		if takes = rand.N(500 * time.Millisecond); rand.IntN(5) < 2 {
			takes += 4 * time.Second
		}
	case "/hang":
		if rand.IntN(2) == 0 { // more of them in a row would block the job, and its runs would not end in time
			takes = time.Minute
		}
	case "/unavailable":
		if rand.IntN(2) == 0 {
			status = http.StatusServiceUnavailable
		}
	case "/moody": // two fires in four fail
		if !r.isHurried() && hit.ScheduledAt.Unix()/2%4 < 2 {
			status = http.StatusServiceUnavailable
		}
	case "/dead": // a third succeeds at once, a third at the first replay, and a third at the second
		if !r.isHurried() && int64(hit.Attempt) <= hit.ScheduledAt.Unix()/2%3 {
			status = http.StatusServiceUnavailable
		}
	case "/accept":
		status = http.StatusAccepted
	case "/flaky":
		switch n := rand.IntN(20); {
		case n == 0:
			status = -1
		case n < 4:
			status = http.StatusServiceUnavailable
		}
	}
	if takes > 0 && !r.wait(q, takes) {
		status = -1
	}
	if r.log.Append(history.Hit{At: time.Now(), Request: hit.Request, Status: status}) != nil || status < 0 {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(status)
	if status == http.StatusAccepted {
		r.caller.accepted(context.WithoutCancel(q.Context()), h, hit.Run, hit.Attempt, r.hurried)
	}
}

func (r *receiver) isHurried() bool {
	select {
	case <-r.hurried:
		return true
	default:
		return false
	}
}
