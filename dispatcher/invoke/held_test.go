package invoke_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/routing"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// heldFor returns a Call.Held that is true for a number of calls.
func heldFor(times int64) func() bool {
	var asked atomic.Int64
	return func() bool { return asked.Add(1) <= times }
}

// While a connection is made, the run may become another node's: then the first byte is not sent.
func TestNothingIsSentOnceTheRunIsAnotherNodes(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	defer server.Close()
	i := newInvoker(t)
	for _, method := range []string{http.MethodPost, http.MethodGet} { // on kept and on new connections
		for times := range int64(2) { // before the connection, and after it
			call := callTo(server.URL, method, ample)
			call.Held = heldFor(times)
			if o := i.Invoke(t.Context(), call); o.State != run.Cancelled || !o.NotSent || requests.Load() != 0 {
				t.Errorf("%s, held %d times: outcome = %+v after %d requests, want cancelled before any", method, times, o, requests.Load())
			}
		}
	}
	call := callTo(server.URL, http.MethodPost, ample)
	call.Held = heldFor(1000)
	for range 2 { // the second time over the kept connection
		if o := i.Invoke(t.Context(), call); o.State != run.Succeeded {
			t.Errorf("held: outcome = %+v, want success", o)
		}
	}
	call.Held = heldFor(0)
	if o := i.Invoke(t.Context(), call); !o.NotSent || requests.Load() != 2 {
		t.Errorf("over a kept connection: outcome = %+v after %d requests, want 2", o, requests.Load())
	}
}

// An endpoint that refuses takes time, too: no other one is tried once the run is another node's.
func TestNoOtherEndpointIsTriedOnceTheRunIsAnotherNodes(t *testing.T) {
	t.Parallel()
	f, i := newFleet(t, 3), newInvoker(t)
	f.refusing(t, 0)
	call := f.call("ping", routing.First)
	call.Held = heldFor(1)
	if o := i.Invoke(t.Context(), call); o.State != run.Cancelled || !o.NotSent || f.hits[1].Load()+f.hits[2].Load() != 0 {
		t.Errorf("outcome = %+v, and requests by endpoint %v, want cancelled before any", o, f.counts())
	}
}
