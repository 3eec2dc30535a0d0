package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"
)

// arrival is one request as the receiver saw it.
type arrival struct {
	path, event, run, trigger, kind string
	attempt                         int
	scheduled, at                   time.Time
}

// receiver records every request before it responds.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	arrivals []arrival
	came     chan struct{}
	// response may delay or change the response; nil responds 204 at once.
	response func(w http.ResponseWriter, a arrival)
}

func newReceiver(t *testing.T, response func(http.ResponseWriter, arrival)) *receiver {
	t.Helper()
	r := &receiver{came: make(chan struct{}, 1), response: response}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		at := time.Now()
		_, _ = io.Copy(io.Discard, req.Body)
		scheduled, err := time.Parse(time.RFC3339Nano, req.Header.Get("carillon-scheduled-at"))
		if err != nil {
			t.Errorf("carillon-scheduled-at: %v", err)
		}
		attempt, _ := strconv.Atoi(req.Header.Get("carillon-attempt"))
		a := arrival{
			path: req.URL.Path, event: req.Header.Get("webhook-id"), run: req.Header.Get("carillon-run"),
			trigger: req.Header.Get("carillon-trigger"),
			kind:    req.Header.Get("carillon-kind"), attempt: attempt, scheduled: scheduled, at: at,
		}
		r.mu.Lock()
		r.arrivals = append(r.arrivals, a)
		r.mu.Unlock()
		select {
		case r.came <- struct{}{}:
		default:
		}
		if r.response != nil {
			r.response(w, a)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) all() []arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]arrival(nil), r.arrivals...)
}

// await returns the arrivals once enough accepts them.
func (r *receiver) await(t *testing.T, what string, enough func([]arrival) bool) []arrival {
	t.Helper()
	deadline := time.After(patience)
	for {
		if all := r.all(); enough(all) {
			return all
		}
		select {
		case <-r.came:
		case <-deadline:
			t.Fatalf("waited in vain for %s; %d requests arrived", what, len(r.all()))
		}
	}
}

// firstAndLast returns the first and the last scheduled time of arrivals.
func firstAndLast(arrivals []arrival) (first, last time.Time) {
	for _, a := range arrivals {
		if first.IsZero() || a.scheduled.Before(first) {
			first = a.scheduled
		}
		if a.scheduled.After(last) {
			last = a.scheduled
		}
	}
	return first, last
}

// holes returns the scheduled times from first to last, at step, that have not arrived.
func holes(arrivals []arrival, first, last time.Time, step time.Duration) (missing []time.Time) {
	seen := map[int64]bool{}
	for _, a := range arrivals {
		seen[a.scheduled.UnixMilli()] = true
	}
	for at := first; !at.After(last); at = at.Add(step) {
		if !seen[at.UnixMilli()] {
			missing = append(missing, at)
		}
	}
	return missing
}

// whole reports whether so many requests of a path have arrived without a gap between their
// scheduled times. Requests of different scheduled times may overtake each other.
func whole(all []arrival, path string, count int, step time.Duration) bool {
	some := on(path, all)
	first, last := firstAndLast(some)
	return len(some) >= count && len(holes(some, first, last, step)) == 0
}

// checkExactlyOnce requires that the scheduled times from the first to the last arrival have no gap
// at step, and that each arrived once and not early.
func checkExactlyOnce(t *testing.T, arrivals []arrival, step time.Duration) {
	t.Helper()
	seen := map[time.Time]int{}
	first, last := firstAndLast(arrivals)
	for _, a := range arrivals {
		seen[a.scheduled]++
		if a.at.Before(a.scheduled) {
			t.Errorf("fire of %s arrived %s early", a.scheduled, a.scheduled.Sub(a.at))
		}
	}
	for at := first; !at.After(last); at = at.Add(step) {
		if seen[at] != 1 {
			t.Errorf("fire of %s arrived %d times, want once", at, seen[at])
		}
		delete(seen, at)
	}
	for at, n := range seen {
		t.Errorf("%d fires arrived for %s, which is no instant of the schedule", n, at)
	}
}

func on(path string, arrivals []arrival) []arrival {
	var some []arrival
	for _, a := range arrivals {
		if a.path == path {
			some = append(some, a)
		}
	}
	return some
}
