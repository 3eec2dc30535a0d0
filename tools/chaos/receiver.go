package main

import (
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/carillon-dev/carillon/tools/chaos/history"
)

// receiver is the target of all jobs. A request is on the disk before it is answered, and so
// is the answer before it leaves.
type receiver struct {
	url      string
	server   *http.Server
	log      *history.Log
	requests atomic.Int64
}

func startReceiver(ctx context.Context, dir string) (*receiver, error) {
	log, err := history.Create(dir, history.Hits, true)
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &receiver{url: "http://" + listener.Addr().String(), log: log}
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	go func() { _ = r.server.Serve(listener) }() // ends with close
	return r, nil
}

func (r *receiver) close() { _ = r.server.Close() }

// ServeHTTP answers as the path says: /ok at once, /slow after up to a second, /flaky now and then
// with an error or not at all.
func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	hit := history.Hit{At: time.Now(), Request: r.requests.Add(1)}
	body, _ := io.ReadAll(q.Body) // what is missing of it, the payload's number shows
	var payload struct{ Put int }
	_ = json.Unmarshal(body, &payload)
	h := q.Header
	hit.App, hit.Job, hit.Trigger, hit.Kind, hit.Event = h.Get("carillon-app"), h.Get("carillon-job"), h.Get("carillon-trigger"), h.Get("carillon-kind"), h.Get("webhook-id")
	hit.Attempt, _ = strconv.Atoi(h.Get("carillon-attempt"))
	hit.ScheduledAt, _ = time.Parse(time.RFC3339Nano, h.Get("carillon-scheduled-at"))
	hit.Put = payload.Put
	if r.log.Append(hit) != nil {
		panic(http.ErrAbortHandler) // what is not recorded is not answered
	}
	status := http.StatusNoContent
	switch q.URL.Path {
	case "/slow":
		select {
		case <-time.After(rand.N(time.Second)):
		case <-q.Context().Done():
			status = -1
		}
	case "/flaky":
		switch n := rand.IntN(20); {
		case n == 0:
			status = -1
		case n < 4:
			status = http.StatusServiceUnavailable
		}
	}
	if r.log.Append(history.Hit{At: time.Now(), Request: hit.Request, Status: status}) != nil || status < 0 {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(status)
}
