package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/routing"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// busyWorkers are real HTTP servers that count how many requests of a job each has at once.
type busyWorkers struct {
	mu      sync.Mutex
	busy    map[string]int // by endpoint and job
	most    map[string]int // the most at once, by endpoint
	events  map[string]int // requests by event id
	came    chan string    // the endpoints of requests as they arrive; may be nil
	respond func(endpoint string, r *http.Request)
}

func (w *busyWorkers) start(t *testing.T, id string) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Method == http.MethodGet {
			return // a probe: it is always idle
		}
		of := id + " " + r.URL.Path
		w.mu.Lock()
		w.busy[of]++
		w.most[id] = max(w.most[id], w.busy[of])
		w.events[r.Header.Get("Webhook-Id")]++
		w.mu.Unlock()
		if w.came != nil {
			w.came <- id
		}
		defer func() { // even if it breaks the connection
			w.mu.Lock()
			defer w.mu.Unlock()
			w.busy[of]--
		}()
		w.respond(id, r)
	}))
	t.Cleanup(server.Close)
	return server
}

// endpointRig is a fleet of nodes and endpoints, with a job that sends one run at a time to an endpoint.
type endpointRig struct {
	*busyWorkers
	t       *testing.T
	store   *store.Store
	servers []*httptest.Server // of e0, e1, ...
}

func newEndpointRig(t *testing.T, database string, nodes, endpoints int) *endpointRig {
	t.Helper()
	r := &endpointRig{t: t, busyWorkers: &busyWorkers{busy: map[string]int{}, most: map[string]int{}, events: map[string]int{}}}
	r.store, _ = startFleet(t, database, nodes)
	group := target.EndpointGroup{App: "app", Name: "workers",
		EndpointGroupSpec: target.EndpointGroupSpec{Endpoints: map[string]target.StaticEndpoint{}}}
	group.SetDefaults()
	for n := range endpoints {
		id := fmt.Sprintf("e%d", n)
		r.servers = append(r.servers, r.start(t, id))
		group.Endpoints[id] = target.StaticEndpoint{URL: r.servers[n].URL}
	}
	if _, _, err := r.store.PutGroup(t.Context(), group, input.Change{Actor: "test"}); err != nil {
		t.Fatal(err)
	}
	return r
}

// declare stores a job that calls the group.
func (r *endpointRig) declare(
	name string, policy run.ConcurrencyPolicy, strategy target.Strategy, change func(*dispatcher.Job),
) {
	r.t.Helper()
	job := dispatcher.Job{App: "app", Name: name}
	job.SetDefaults()
	job.QueueLimit = dispatcher.MaxQueueLimit
	job.Target.Group = &target.GroupTarget{Name: "workers", Path: "/" + name, Strategy: strategy, EndpointConcurrency: policy}
	job.Target.Group.SetDefaults()
	if change != nil {
		change(&job)
	}
	if _, _, err := r.store.PutJob(r.t.Context(), job, input.Change{Actor: "test"}); err != nil {
		r.t.Fatal(err)
	}
}

// request requests a run of a job.
func (r *endpointRig) request(name string) string {
	r.t.Helper()
	run, err := r.store.RequestRun(r.t.Context(), "app", name, nil, input.Change{Actor: "test"})
	if err != nil {
		r.t.Fatal(err)
	}
	return run.ID
}

// await waits until a run is as a test wants it.
func (r *endpointRig) await(id string, wanted func(run.Run) bool) run.Run {
	r.t.Helper()
	late, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	for {
		run, err := r.store.Run(context.WithoutCancel(r.t.Context()), id)
		if err != nil {
			r.t.Fatal(err)
		}
		if wanted(run) {
			return run
		}
		if late.Err() != nil {
			r.t.Fatalf("run %+v is not as wanted", run)
		}
	}
}

func ended(run run.Run) bool { return run.EndedAt != nil }

// onBothDatabases runs a test with three nodes, or the single one that SQLite allows.
func onBothDatabases(t *testing.T, test func(t *testing.T, database string, nodes int)) {
	t.Helper()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		test(t, newDatabase(t), 1)
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		test(t, pgtest.New(t), 3)
	})
}

// Many runs of two jobs go to few endpoints from several nodes. No endpoint ever has two requests of one job, and while
// it has one, the database assigns it to that run.
func TestNoEndpointHasTwoRunsOfAJob(t *testing.T) {
	t.Parallel()
	for _, policy := range []run.ConcurrencyPolicy{run.ConcurrencyQueue, run.ConcurrencyForbid} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			onBothDatabases(t, func(t *testing.T, database string, nodes int) {
				t.Helper()
				testOneRunPerEndpoint(t, database, nodes, policy)
			})
		})
	}
}

func testOneRunPerEndpoint(t *testing.T, database string, nodes int, policy run.ConcurrencyPolicy) {
	t.Helper()
	const runs = 80
	r := newEndpointRig(t, database, nodes, 3)
	r.respond = func(endpoint string, request *http.Request) {
		for range 1 + rand.IntN(4) {
			taken, err := r.store.Slots(request.Context(), "app", strings.TrimPrefix(request.URL.Path, "/"))
			at := slices.IndexFunc(taken, func(s dispatcher.Slot) bool { return s.Endpoint == endpoint })
			if err == nil && (at < 0 || taken[at].Run != request.Header.Get("Carillon-Run")) {
				t.Errorf("during run %s at %s the slots are %+v", request.Header.Get("Carillon-Run"), endpoint, taken)
			}
		}
	}
	strategies := map[string]target.Strategy{"even": routing.RoundRobin, "odd": routing.Random}
	for name, strategy := range strategies {
		r.declare(name, policy, strategy, nil)
	}
	var requested []string
	for range runs {
		for name := range strategies {
			requested = append(requested, r.request(name))
		}
	}
	states := map[run.State]int{}
	for _, id := range requested {
		one := r.await(id, ended)
		states[one.State]++
		r.mu.Lock()
		sent := r.events[one.EventID]
		r.mu.Unlock()
		if want := map[run.State]int{run.Succeeded: 1}[one.State]; sent != want {
			t.Errorf("run %s is %s (%s) after %d requests, want %d", id, one.State, one.Error, sent, want)
		}
	}
	for endpoint, most := range r.most {
		if most != 1 {
			t.Errorf("%s had %d requests of a job at once", endpoint, most)
		}
	}
	if policy == run.ConcurrencyQueue && states[run.Succeeded] != len(requested) {
		t.Errorf("runs = %v, want all to have succeeded", states)
	}
	if states[run.Succeeded]+states[run.Skipped] != len(requested) {
		t.Errorf("runs = %v, want them to have succeeded or to be skipped", states)
	}
}

// A new run at an endpoint cancels the older one there, with its request, and is sent when its node has stopped that
// request. The endpoint may still see both at once: HTTP cannot recall a request, and servers notice a disconnect late.
// So the database's order counts: the endpoint is the newer run's when that run's request arrives.
func TestReplaceCancelsTheRequestAtTheEndpoint(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string, nodes int) {
		t.Helper()
		r := newEndpointRig(t, database, nodes, 1)
		r.came = make(chan string, 2)
		first := make(chan struct{}, 1)
		first <- struct{}{}
		replaced := make(chan string, 1)
		r.respond = func(_ string, request *http.Request) {
			select {
			case <-first:
				<-request.Context().Done() // cut off
			default:
				older, runErr := r.store.Run(request.Context(), <-replaced)
				taken, err := r.store.Slots(request.Context(), "app", "job")
				err = errors.Join(runErr, err)
				if own := request.Header.Get("Carillon-Run"); err != nil || !ended(older) || len(taken) != 1 || taken[0].Run != own {
					t.Errorf("when run %s is sent, slots are %+v, %v, and the older run is %+v; want it ended", own, taken, err, older)
				}
			}
		}
		r.declare("job", run.ConcurrencyReplace, routing.First, nil)
		older := r.request("job")
		replaced <- older
		<-r.came
		newer := r.request("job")
		if one := r.await(newer, ended); one.State != run.Succeeded {
			t.Errorf("the newer run is %+v", one)
		}
		if one := r.await(older, ended); one.State != run.Cancelled || one.Error != "replaced by run "+newer {
			t.Errorf("the older run is %+v, want it cancelled by the newer", one)
		}
	})
}

// An endpoint that has a run of the job is busy for busyover, whatever its probe responds.
func TestBusyEndpointIsPassedOver(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string, nodes int) {
		t.Helper()
		r := newEndpointRig(t, database, nodes, 2)
		r.came = make(chan string, 3)
		release := make(chan struct{})
		r.respond = func(string, *http.Request) { <-release }
		r.declare("job", run.ConcurrencyQueue, routing.BusyOver, nil)
		requested := []string{r.request("job"), r.request("job")}
		at := []string{<-r.came, <-r.came}
		slices.Sort(at)
		if !slices.Equal(at, []string{"e0", "e1"}) {
			t.Errorf("requests at %v, want one at each", at)
		}
		waits := r.request("job")
		one := r.await(waits, func(one run.Run) bool {
			return one.State == run.Failed || one.State == run.Retrying
		})
		if one.Class != run.ClassEndpointsBusy || !strings.Contains(one.Error, "e0: runs run ") {
			t.Errorf("the third run is %+v, want its attempt to have found both busy", one)
		}
		close(release)
		for _, id := range requested {
			r.await(id, ended)
		}
	})
}

// A waiting run goes on when the endpoint is taken out, and an endpoint that refuses a request gives its slot back.
func TestWaitingRunIsRoutedAgain(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string, nodes int) {
		t.Helper()
		r := newEndpointRig(t, database, nodes, 3)
		r.servers[0].Close() // refuses
		r.came = make(chan string, 3)
		release := make(chan struct{})
		r.respond = func(endpoint string, _ *http.Request) {
			if endpoint == "e1" {
				<-release
			}
		}
		r.declare("job", run.ConcurrencyQueue, routing.First, func(j *dispatcher.Job) { j.Delivery = dispatcher.AtMostOnce })
		first := r.request("job")
		if at := <-r.came; at != "e1" {
			t.Fatalf("the first run went to %s, want e1", at)
		}
		second := r.request("job")
		r.await(second, func(run run.Run) bool { return run.WaitsForEndpoint == "e1" })
		taken, err := r.store.Slots(t.Context(), "app", "job")
		if err != nil || len(taken) != 1 || taken[0].Endpoint != "e1" {
			t.Errorf("slots = %+v, %v, want that of e1 only", taken, err)
		}
		if _, err := r.store.DrainEndpoint(t.Context(), "app", "workers", "e1", true, input.Change{Actor: "test"}); err != nil {
			t.Fatal(err)
		}
		if one := r.await(second, ended); one.State != run.Succeeded || one.Attempt != 1 {
			t.Errorf("the second run is %+v, want it to have succeeded at its first attempt", one)
		}
		if at := <-r.came; at != "e2" {
			t.Errorf("the second run went to %s, want e2", at)
		}
		close(release)
		r.await(first, ended)
	})
}

// A run that failed at an endpoint that is now busy is not skipped: it takes the next free one.
func TestRetryPassesOverAnEndpointThatForbidsIt(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string, nodes int) {
		t.Helper()
		r := newEndpointRig(t, database, nodes, 2)
		release := make(chan struct{})
		var first sync.Map // has the run whose request came first
		r.respond = func(endpoint string, request *http.Request) {
			run, _ := first.LoadOrStore("run", request.Header.Get("Carillon-Run"))
			switch {
			case run != request.Header.Get("Carillon-Run"):
				<-release
			case endpoint == "e0":
				panic(http.ErrAbortHandler)
			}
		}
		r.declare("job", run.ConcurrencyForbid, routing.First, func(j *dispatcher.Job) {
			j.Retry.MaxAttempts, j.Retry.Base = 50, input.Duration(time.Second)
		})
		failing := r.request("job")
		r.await(failing, func(one run.Run) bool { return one.State == run.Retrying })
		for holds := false; !holds; { // a run that arrives during a retry is skipped
			next := r.request("job")
			r.await(next, func(run run.Run) bool {
				taken, err := r.store.Slots(t.Context(), "app", "job")
				holds = err == nil && slices.ContainsFunc(taken, func(s dispatcher.Slot) bool { return s.Run == next && s.Endpoint == "e0" })
				return holds || ended(run)
			})
		}
		one := r.await(failing, ended)
		last := one.Attempts[len(one.Attempts)-1]
		if one.State != run.Succeeded || one.Attempt < 2 {
			t.Errorf("the run that failed first is %+v, want it to have succeeded at e1", last)
		}
		close(release)
	})
}
