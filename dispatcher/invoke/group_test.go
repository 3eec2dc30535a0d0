package invoke_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/invoke"
	"github.com/carillon-dev/carillon/dispatcher/routing"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// fleet is a group of real HTTP servers: e0, e1 and so on.
type fleet struct {
	group   *target.GroupVersion
	servers []*httptest.Server
	hits    []atomic.Int64 // requests without probes
	probes  []atomic.Int64
	// respond replaces the response of a server; nil: 204. A probe has method GET.
	respond func(n int, w http.ResponseWriter, r *http.Request)
}

func newFleet(t *testing.T, size int) *fleet {
	t.Helper()
	f := &fleet{group: &target.GroupVersion{}, hits: make([]atomic.Int64, size), probes: make([]atomic.Int64, size)}
	f.group.SetDefaults()
	f.group.App, f.group.Name, f.group.Probe.Timeout = "demo", "workers", input.Duration(ample)
	for n := range size {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if r.Method == http.MethodGet {
				f.probes[n].Add(1)
			} else {
				f.hits[n].Add(1)
			}
			if f.respond != nil {
				f.respond(n, w, r)
				return
			}
			w.WriteHeader(http.StatusNoContent)
		}))
		t.Cleanup(server.Close)
		f.servers = append(f.servers, server)
		f.group.Live = append(f.group.Live, target.Endpoint{
			ID: fmt.Sprintf("e%d", n), Source: target.EndpointStatic, StaticEndpoint: target.StaticEndpoint{URL: server.URL},
		})
	}
	return f
}

// call returns a call of the job to the group.
func (f *fleet) call(job string, strategy target.Strategy) target.Call {
	call := callTo("", "POST", ample)
	to := &target.GroupTarget{Name: f.group.Name, Path: "/run", Strategy: strategy, Timeout: input.Duration(ample)}
	call.Job, call.Target, call.Group = job, target.Target{Group: to}, f.group
	return call
}

// counts returns how many requests each endpoint had.
func (f *fleet) counts() []int64 {
	counts := make([]int64, len(f.hits))
	for n := range f.hits {
		counts[n] = f.hits[n].Load()
	}
	return counts
}

// refusing makes an endpoint refuse connections.
func (f *fleet) refusing(t *testing.T, n int) refusedPort {
	t.Helper()
	f.servers[n].Close()
	return refuse(t, f.servers[n].Listener.Addr().String())
}

// mustSucceed makes an attempt and returns its endpoint.
func mustSucceed(t *testing.T, i *invoke.Invoker, call target.Call) string {
	t.Helper()
	o := i.Invoke(t.Context(), call)
	if o.State != run.Succeeded || o.Response == nil {
		t.Fatalf("outcome = %+v, want success and a response", o)
	}
	return o.Response.Endpoint
}

func TestEndpointGetsTheRequestOfTheJob(t *testing.T) {
	t.Parallel()
	address, requests := recorder(t)
	i := withSecrets(t, map[string]string{"key": "wJalrXUtnFEMI", "token": "session"})
	token := secretFile("token")
	group := &target.GroupVersion{Live: []target.Endpoint{
		{ID: "one", Source: target.EndpointStatic, StaticEndpoint: target.StaticEndpoint{URL: address + "/base/"}},
	}}
	group.App, group.Name, group.Path = "demo", "workers", "/tasks"
	group.Auth = &target.Auth{SigV4: &target.SigV4Auth{
		Service: "lambda", Region: "eu-central-1", Credentials: &target.AWSCredentials{
			AccessKeyID: "AKIAIOSFODNN7EXAMPLE", SecretAccessKey: secretFile("key"), SessionToken: &token,
		},
	}}
	call := callTo("", "POST", ample)
	call.Target = target.Target{Group: &target.GroupTarget{
		Name: "workers", Path: "/nightly/{{.Job}}?at={{.Attempt}}", Headers: map[string]string{"X-Run": "{{.Run}}"},
		CloudEvents: target.CloudEventsBinary,
	}}
	var err error
	if call.Templates, err = call.Target.Templates(); err != nil {
		t.Fatal(err)
	}
	call.Group, call.Payload = group, []byte(`{"n":1}`)
	o := i.Invoke(t.Context(), call)
	if o.State != run.Succeeded || o.Response == nil || o.Response.Endpoint != "one" {
		t.Fatalf("outcome = %+v, want success at endpoint one", o)
	}
	got := <-requests
	if got.url.RequestURI() != "/base/tasks/nightly/ping?at=2" || string(got.body) != `{"n":1}` {
		t.Errorf("request = %s %s", got.url.RequestURI(), got.body)
	}
	for name, want := range map[string]string{
		"Carillon-Endpoint": "one", "Webhook-Id": "evt_1", "X-Run": call.Key.String(), "Ce-Id": "evt_1",
		"Authorization": resigned(t, got, address),
	} {
		if got.header.Get(name) != want {
			t.Errorf("%s = %q, want %q", name, got.header.Get(name), want)
		}
	}
	group.ServerName = "workers.example"
	if o := i.Invoke(t.Context(), call); o.State != run.Succeeded {
		t.Fatalf("outcome = %+v", o)
	}
	got = <-requests
	if want := resigned(t, got, "http://workers.example"); got.header.Get("Authorization") != want {
		t.Errorf("Authorization = %s\nwant %s", got.header.Get("Authorization"), want)
	}
}

// Three nodes make 1,000 requests to five endpoints; docs/routing.md states the bounds.
func TestStrategiesDistributeRequestsOfThreeNodes(t *testing.T) {
	t.Parallel()
	const fires, nodes = 1000, 3
	only := func(n int) func([]int64) bool {
		return func(counts []int64) bool { return counts[n] == fires }
	}
	within := func(slack int64) func([]int64) bool {
		return func(counts []int64) bool { return slices.Max(counts)-slices.Min(counts) <= slack }
	}
	for strategy, fair := range map[target.Strategy]func([]int64) bool{
		routing.First: only(0), routing.Last: only(4), routing.Failover: only(0), routing.BusyOver: only(0), routing.GlobalBusyOver: only(0),
		routing.RoundRobin: within(nodes), routing.LeastRecentlyUsed: within(nodes), routing.LeastFrequentlyUsed: within(nodes),
		routing.Random:         within(150), // more than five standard deviations of a difference
		routing.ConsistentHash: func(counts []int64) bool { return slices.Max(counts) == fires },
		routing.Weighted: func(counts []int64) bool {
			// e0 has weight 6 of 10. One gets less than 3 more than its share, and at most 3*(1+1/2+...+1/5) less.
			return counts[0] < 600+nodes && counts[0] > 600-7 && within(nodes+7)(counts[1:])
		},
		routing.LeastConnections: within(fires), // see the test of requests in flight
	} {
		t.Run(string(strategy), func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, 5)
			if strategy == routing.Weighted {
				f.group.Live[0].Weight = 6
			}
			invokers := [nodes]*invoke.Invoker{}
			for n := range invokers {
				invokers[n] = newInvoker(t)
			}
			call := f.call("ping", strategy)
			for n := range fires {
				mustSucceed(t, invokers[n%nodes], call)
			}
			if counts := f.counts(); !fair(counts) {
				t.Errorf("counts = %v", counts)
			}
		})
	}
}

// Requests of least_connections avoid endpoints that have some in flight.
func TestLeastConnectionsCountsRequestsInFlight(t *testing.T) {
	t.Parallel()
	f, i := newFleet(t, 5), newInvoker(t)
	var arrived sync.WaitGroup
	arrived.Add(50)
	all := make(chan struct{})
	go func() { arrived.Wait(); close(all) }()
	f.respond = func(_ int, _ http.ResponseWriter, _ *http.Request) {
		arrived.Done()
		<-all
	}
	var group errgroup.Group
	for n := range 50 {
		group.Go(func() error {
			if o := i.Invoke(t.Context(), f.call(fmt.Sprint("job", n%7), routing.LeastConnections)); o.State != run.Succeeded {
				return fmt.Errorf("outcome = %+v", o)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if counts := f.counts(); slices.Max(counts) != 10 || slices.Min(counts) != 10 {
		t.Errorf("counts = %v, want 10 each", counts)
	}
}

func TestHashKeyDecidesTheEndpoint(t *testing.T) {
	t.Parallel()
	f, nodes := newFleet(t, 5), []*invoke.Invoker{newInvoker(t), newInvoker(t), newInvoker(t)}
	at := map[string]string{}
	for n := range 300 {
		call := f.call("ping", routing.ConsistentHash)
		call.Trigger = fmt.Sprint("trigger", n%50)
		call.Target.Group.HashKey = "{{.Trigger}}"
		var err error
		if call.Templates, err = call.Target.Templates(); err != nil {
			t.Fatal(err)
		}
		endpoint := mustSucceed(t, nodes[n%3], call)
		if before := at[call.Trigger]; before != "" && before != endpoint {
			t.Errorf("%s went to %s and to %s", call.Trigger, before, endpoint)
		}
		at[call.Trigger] = endpoint
	}
	if counts := f.counts(); slices.Min(counts) == 0 {
		t.Errorf("counts = %v, want each endpoint to have some of 50 keys", counts)
	}
}

// Endpoints that refuse connections cost no run and no attempt, and are tried rarely.
func TestNextEndpointIsTriedWhenOneRefusesTheConnection(t *testing.T) {
	t.Parallel()
	f, i := newFleet(t, 5), newInvoker(t)
	call := f.call("ping", routing.RoundRobin)
	mustSucceed(t, i, call)
	f.refusing(t, 1)
	f.refusing(t, 3)
	for range 1000 {
		mustSucceed(t, i, call)
	}
	counts := f.counts()
	if sum := counts[0] + counts[1] + counts[2] + counts[3] + counts[4]; sum != 1001 || counts[1]+counts[3] > 1 {
		t.Errorf("counts = %v, want 1001 requests, and none at e1 and e3 after they were gone", counts)
	}
}

func TestEndpointThatComesBackGetsRequests(t *testing.T) {
	t.Parallel()
	f, i := newFleet(t, 2), newInvoker(t)
	port := f.refusing(t, 0)
	call := f.call("ping", routing.First)
	if at := mustSucceed(t, i, call); at != "e1" {
		t.Fatalf("request went to %s, want e1 while e0 refuses", at)
	}
	listener := port.listen(t)
	again := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})} //nolint:gosec // for a test
	go func() { _ = again.Serve(listener) }()
	t.Cleanup(func() { _ = again.Close() })
	late, cancel := context.WithTimeout(t.Context(), ample)
	defer cancel()
	for mustSucceed(t, i, call) != "e0" {
		if late.Err() != nil {
			t.Fatal("e0 got no request again")
		}
	}
}

// An endpoint whose packets are lost takes half of the remaining time.
func TestNextEndpointIsTriedWhenOneCannotBeReached(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.group.Live = append(f.group.Live, f.group.Live[0])
	f.group.Live[0] = target.Endpoint{ID: "a", StaticEndpoint: target.StaticEndpoint{URL: "http://" + fullListener(t)}}
	// All timeouts are shorter than the longest time for a connection, so that e0 is reached only if a takes half of them. A
	// slow machine may need several tries: to reach e0 in the other half, and to look before a is tried first again.
	for _, timeout := range []time.Duration{2, 4, 8, 8, 8, 8, 8, 8, 8, 8} {
		i, call := newInvoker(t), f.call("ping", routing.First)
		call.Target.Group.Timeout = input.Duration(timeout * time.Second)
		o := i.Invoke(t.Context(), call)
		failed := i.GroupStatus(t.Context(), *f.group, target.EgressBounds{}).Endpoints[0]
		if o.State != run.Succeeded || failed.State != target.EndpointSuspect {
			continue
		}
		if o.Response.Endpoint != "e0" || !strings.HasPrefix(failed.Reason, "no connection within ") {
			t.Fatalf("request went to %s, and a is %+v, want e0 and no connection to a", o.Response.Endpoint, failed)
		}
		call.Target.Group.Timeout = input.Duration(ample)
		if o = i.Invoke(t.Context(), call); !o.StartedAt.Before(*failed.Until) {
			continue
		}
		// If a had been tried before e0, it would be suspect for longer.
		now := i.GroupStatus(t.Context(), *f.group, target.EgressBounds{}).Endpoints[0]
		if o.State != run.Succeeded || o.Response.Endpoint != "e0" ||
			now.Until != nil && !now.Until.Equal(*failed.Until) {
			t.Errorf("outcome of the next request = %+v, and a is %+v, want e0 to be tried first", o, now)
		}
		return
	}
	t.Error("no request went to e0 while a could not be reached, with a suspect afterwards")
}

// A request that an endpoint may have received goes to no other.
func TestNoOtherEndpointIsTriedAfterTheRequestWasSent(t *testing.T) {
	t.Parallel()
	for what, respond := range map[string]func(int, http.ResponseWriter, *http.Request){
		"reset": func(int, http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"error": func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f, i := newFleet(t, 3), newInvoker(t)
			f.respond = respond
			call := f.call("ping", routing.RoundRobin)
			for n := range int64(6) {
				o := i.Invoke(t.Context(), call)
				counts := f.counts()
				if sum := counts[0] + counts[1] + counts[2]; o.State == run.Succeeded || o.NotSent || sum != n+1 {
					t.Fatalf("outcome = %+v, counts = %v, want a failure of one request", o, counts)
				}
				if o.Response == nil || o.Response.Endpoint == "" {
					t.Errorf("outcome = %+v, want it to name the endpoint", o)
				}
			}
		})
	}
}

func TestNoOtherEndpointIsTriedAfterTheTimeout(t *testing.T) {
	t.Parallel()
	f, i := newFleet(t, 3), newInvoker(t)
	arrived := make(chan string, 1000) // attempts, by their event ids
	f.respond = func(_ int, _ http.ResponseWriter, r *http.Request) {
		arrived <- r.Header.Get("Webhook-Id")
		<-r.Context().Done()
	}
	call := f.call("ping", routing.RoundRobin)
	sent, attempts, timeout := map[string]bool{}, 0, 250*time.Millisecond
	for ; len(sent) < 6; attempts++ {
		call.EventID, call.Target.Group.Timeout = fmt.Sprint("evt_", attempts), input.Duration(timeout)
		switch o := i.Invoke(t.Context(), call); {
		case o.Class == run.ClassTimeout && !o.NotSent:
			sent[call.EventID] = true
			if o.Response == nil || o.Response.Endpoint == "" {
				t.Errorf("outcome = %+v, want it to name the endpoint", o)
			}
		case o.NotSent && timeout < ample: // a slow machine made no connection in time
			timeout *= 2
		default:
			t.Fatalf("outcome = %+v, want a timeout after the request was sent", o)
		}
	}
	// HTTP cannot recall a request, so a sent one arrives, if late.
	late, cancel := context.WithTimeout(t.Context(), ample)
	defer cancel()
	for waiting := maps.Clone(sent); len(waiting) > 0; {
		select {
		case event := <-arrived:
			delete(waiting, event)
		case <-late.Done():
			t.Fatalf("the requests of attempts %v did not arrive", waiting)
		}
	}
	for _, server := range f.servers {
		server.Close() // after its last request
	}
	if counts := f.counts(); counts[0]+counts[1]+counts[2] != int64(len(sent)) {
		t.Errorf("counts = %v of %d attempts, want one request each", counts, len(sent))
	}
}

func TestAttemptWithoutAnEndpointShowsTheReason(t *testing.T) {
	t.Parallel()
	f, i := newFleet(t, 3), newInvoker(t)
	for n := range f.servers {
		f.refusing(t, n)
	}
	if o := i.Invoke(t.Context(), f.call("ping", routing.RoundRobin)); o.Class != run.ClassNoEndpoint || !o.NotSent ||
		!strings.Contains(o.Error, "no endpoint of group workers is up; of 3, 3 were tried: e") || !strings.Contains(o.Error, "refused") {
		t.Errorf("outcome of refusing endpoints = %+v", o)
	}
	f.group = &target.GroupVersion{EndpointGroup: f.group.EndpointGroup, Live: slices.Clone(f.group.Live)}
	for n := range f.group.Live {
		f.group.Live[n].Draining = true
	}
	for what, live := range map[string][]target.Endpoint{
		"it has 3, of which 3 are draining": f.group.Live, "it has 0, of which 0 are draining": nil,
	} {
		f.group = &target.GroupVersion{EndpointGroup: f.group.EndpointGroup, Live: live}
		o := i.Invoke(t.Context(), f.call("ping", routing.RoundRobin))
		if o.State != failed || o.Class != run.ClassNoEndpoint || !o.NotSent || !strings.HasSuffix(o.Error, what) {
			t.Errorf("outcome = %+v, want it to say that %s", o, what)
		}
	}
}

// A shard goes to its endpoint while that may be chosen, and otherwise to another, under the same index and total.
func TestShardGoesToItsEndpointOrElseToAnother(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4)
	i := newInvoker(t)
	var mu sync.Mutex
	var said []string
	f.respond = func(_ int, w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, r.Header.Get("Carillon-Shard-Index")+"/"+r.Header.Get("Carillon-Shard-Total"))
		w.WriteHeader(http.StatusNoContent)
	}
	call := f.call("job", routing.Broadcast)
	shard := func(index int, endpoint string) string {
		t.Helper()
		call.Shard = &run.Shard{Index: index, Total: 4, Endpoint: endpoint}
		return mustSucceed(t, i, call)
	}
	for n := range 4 {
		if got, want := shard(n, fmt.Sprint("e", n)), fmt.Sprint("e", n); got != want {
			t.Errorf("shard %d went to %s, want %s", n, got, want)
		}
	}
	f.refusing(t, 1)
	f.group.Live[2].Draining = true
	i = newInvoker(t) // without connections that were open before
	for index, endpoint := range []string{1: "e1", 2: "e2", 3: "gone"} {
		if index == 0 {
			continue
		}
		if got := shard(index, endpoint); got != "e0" && got != "e3" {
			t.Errorf("shard %d of %s went to %s, want one that is up", index, endpoint, got)
		}
	}
	if want := []string{"0/4", "1/4", "2/4", "3/4", "1/4", "2/4", "3/4"}; !slices.Equal(said, want) {
		t.Errorf("requests said %v, want %v", said, want)
	}
	// An edit of the job, or of the group, does not change where its shards go.
	call = f.call("job", routing.Last)
	if got := shard(0, "e0"); got != "e0" {
		t.Errorf("a shard of a job that was edited went to %s, want e0", got)
	}
	call.Shard = nil
	if got := mustSucceed(t, i, call); got != "e3" {
		t.Errorf("a run that is no shard went to %s, want e3", got)
	}
}
