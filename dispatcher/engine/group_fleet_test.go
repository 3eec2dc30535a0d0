package engine

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/invoke"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/routing"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// workers are real HTTP servers that count the requests of jobs.
type workers struct {
	mu     sync.Mutex
	counts map[string]int    // by endpoint
	events map[string]string // the latest endpoint of an event, by event id
	again  []string          // events that were repeated although neither their endpoint nor their node died
	ending bool              // the nodes stop, and another may repeat their sends
	came   loop.Signal
}

// dies is the endpoint that dies with its requests.
const dies = "e0"

func (w *workers) start(t *testing.T, id string) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Header.Get("Carillon-Endpoint") != id {
			t.Errorf("%s got a request for endpoint %s", id, r.Header.Get("Carillon-Endpoint"))
		}
		w.mu.Lock()
		w.counts[id]++
		event := r.Header.Get("Webhook-Id")
		if before, is := w.events[event]; is && before != dies && !w.ending {
			w.again = append(w.again, event)
		}
		w.events[event] = id
		w.mu.Unlock()
		w.came.Notify()
	}))
	t.Cleanup(server.Close)
	return server
}

// pause pauses the job, or resumes it.
func (w *workers) pause(t *testing.T, s *store.Store, paused bool) {
	t.Helper()
	if _, err := s.PauseJob(t.Context(), "app", "dense", "", paused, input.Change{Actor: "test"}); err != nil {
		t.Fatal(err)
	}
}

// await waits until the counts by endpoint are enough, and returns them.
func (w *workers) await(t *testing.T, what string, enough func(counts map[string]int) bool) map[string]int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		w.mu.Lock()
		counts := maps.Clone(w.counts)
		w.mu.Unlock()
		if enough(counts) {
			return counts
		}
		select {
		case <-w.came:
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s; counts = %v", what, counts)
		}
	}
}

func sum(counts map[string]int) (total int) {
	for _, n := range counts {
		total += n
	}
	return total
}

// startFleet starts nodes over one database, with an app, until stop.
func startFleet(t *testing.T, database string, nodes int) (s *store.Store, stop func()) {
	t.Helper()
	return startMeasured(t, database, nodes, nil)
}

// startMeasured is startFleet for nodes that count their statements.
func startMeasured(t testing.TB, database string, nodes int, metrics []*prometheus.Registry) (s *store.Store, stop func()) {
	t.Helper()
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	for n := range nodes {
		var options store.Options
		if metrics != nil {
			options.Metrics = metrics[n]
		}
		opened, err := store.Open(t.Context(), database, options)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = opened.Close() })
		s = opened
		if n == 0 {
			app := access.App{Name: "app", AppSpec: access.AppSpec{Enabled: true}}
			if _, _, err := s.PutApp(t.Context(), app, input.Change{Actor: "test"}); err != nil {
				t.Fatal(err)
			}
		}
		invoker := invoke.New(invoke.Options{Egress: web.Egress{Loopback: true}})
		e := New(s, invoker, Options{
			Name: fmt.Sprint("node", n), Logger: slog.New(slog.DiscardHandler), Pool: pool.Options{Workers: 64, Queue: 500},
			Window: time.Second, Heartbeat: 500 * time.Millisecond, Handler: time.Second, Grace: 200 * time.Millisecond,
		})
		running.Go(func() { e.Run(ctx); invoker.Close() })
	}
	stopped := sync.OnceFunc(func() { end(); running.Wait() })
	t.Cleanup(stopped)
	return s, stopped
}

// Three nodes, or the single one that SQLite allows, send the fires of a dense job to five endpoints. Meanwhile one
// endpoint dies, one is drained, and one registers. Each fire is one request and a run that succeeded.
func TestFleetOfEndpointsGetsEachFireOnce(t *testing.T) {
	need.Step(t, "fleets")
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		testFleet(t, newDatabase(t), 1)
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		testFleet(t, pgtest.New(t), 3)
	})
}

func testFleet(t *testing.T, database string, nodes int) {
	t.Helper()
	w := &workers{counts: map[string]int{}, events: map[string]string{}, came: loop.NewSignal()}
	const perSecond = 100
	s, stop := startFleet(t, database, nodes)
	change := input.Change{Actor: "test"}
	group := target.EndpointGroup{App: "app", Name: "workers",
		EndpointGroupSpec: target.EndpointGroupSpec{Endpoints: map[string]target.StaticEndpoint{}}}
	group.SetDefaults()
	servers := map[string]*httptest.Server{}
	for n := range 5 {
		id := fmt.Sprintf("e%d", n)
		servers[id] = w.start(t, id)
		group.Endpoints[id] = target.StaticEndpoint{URL: servers[id].URL}
	}
	late := w.start(t, "late")
	group.Registration = &target.Registration{Networks: []string{"127.0.0.0/8"}, Ports: []int{portOf(t, late)}}
	group.Registration.SetDefaults()
	job := dispatcher.Job{App: "app", Name: "dense", JobSpec: dispatcher.JobSpec{Enabled: true, Triggers: map[string]dispatcher.Trigger{}}}
	for n := range perSecond {
		trigger := dispatcher.Trigger{}
		trigger.SetDefaults()
		trigger.Expression = "rate(1s)"
		job.Triggers[fmt.Sprintf("t%02d", n)] = trigger
	}
	job.Target.Group = &target.GroupTarget{Name: "workers", Path: "/run", Strategy: routing.RoundRobin}
	job.Target.Group.SetDefaults()
	job.Target.Group.Timeout = input.Duration(10 * time.Minute) // a slow machine sends nothing again
	_, _, err := s.PutGroup(t.Context(), group, change)
	if err == nil {
		_, _, err = s.PutJob(t.Context(), job, change)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.await(t, "300 requests", func(counts map[string]int) bool { return sum(counts) >= 3*perSecond })
	w.pause(t, s, true)
	endedRuns(t, s) // no request is under way while they are counted
	counts := w.await(t, "nothing", func(map[string]int) bool { return true })
	// Nodes count by themselves.
	ids := slices.Sorted(maps.Keys(counts))
	low, high := slices.Min(slices.Collect(maps.Values(counts))), slices.Max(slices.Collect(maps.Values(counts)))
	if !slices.Equal(ids, []string{"e0", "e1", "e2", "e3", "e4"}) || high-low > nodes {
		t.Errorf("counts = %v, want each endpoint to have a fifth", counts)
	}
	w.pause(t, s, false)
	w.await(t, "100 more requests", func(now map[string]int) bool { return sum(now) >= sum(counts)+perSecond })

	servers[dies].CloseClientConnections()
	servers[dies].Close()
	if _, err := s.DrainEndpoint(t.Context(), "app", "workers", "e1", true, change); err != nil {
		t.Fatal(err)
	}
	endpoint := target.Endpoint{ID: "late", StaticEndpoint: target.StaticEndpoint{URL: late.URL}}
	if _, _, err := s.RegisterEndpoint(t.Context(), "app", "workers", endpoint, change); err != nil {
		t.Fatal(err)
	}
	w.await(t, "requests to the new endpoint", func(counts map[string]int) bool { return counts["late"] >= perSecond/10 })
	before := w.await(t, "nothing", func(map[string]int) bool { return true })
	// Each node learns of the changes in its own time, and then sends no more to e0, which died, and the drained e1.
	w.await(t, "700 requests of which e0 and e1 get none", func(counts map[string]int) bool {
		if counts[dies] != before[dies] || counts["e1"] != before["e1"] {
			before = counts
		}
		return sum(counts) >= sum(before)+7*perSecond
	})
	w.mu.Lock()
	w.ending = true
	w.mu.Unlock()
	stop()
	checkFleet(t, s, w)
}

// checkFleet compares the requests of endpoints with the runs.
func checkFleet(t *testing.T, s *store.Store, w *workers) {
	t.Helper()
	states := map[run.State]int{}
	page := input.Page{Limit: 500}
	for {
		runs, err := s.Runs(context.WithoutCancel(t.Context()), dispatcher.RunQuery{App: "app", Page: page})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range runs {
			states[r.State]++
			if r.State == run.Succeeded && w.events[r.EventID] == "" {
				t.Errorf("run %s succeeded without a request", r.ID)
			}
		}
		if len(runs) < page.Limit {
			break
		}
		page.Cursor = runs[len(runs)-1].ID
	}
	lost := states[run.Failed] + states[run.Lost] + states[run.TimedOut]
	if states[run.Succeeded] < 1000 || lost > 0 || len(w.again) > 0 {
		t.Errorf("runs = %v, sent again: %q, want all to have succeeded with one request", states, w.again)
	}
}

func portOf(t testing.TB, server *httptest.Server) (port int) {
	t.Helper()
	if _, err := fmt.Sscanf(server.URL, "http://127.0.0.1:%d", &port); err != nil {
		t.Fatal(err)
	}
	return port
}
