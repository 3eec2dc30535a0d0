package engine

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/invoke"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/freeport"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// killable is a node that can be killed: without its database, it records and hands back nothing.
type killable struct {
	store *store.Store
	end   func()
}

func startKillable(t *testing.T, database, name string) *killable {
	t.Helper()
	s, err := store.Open(t.Context(), database, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	invoker := invoke.New(invoke.Options{Egress: web.Egress{Loopback: true}})
	e := New(s, invoker, Options{
		Name: name, Logger: slog.New(slog.DiscardHandler), Pool: pool.Options{Workers: 64, Queue: 500},
		Window: time.Second, Heartbeat: 500 * time.Millisecond, DeadAfter: 15 * time.Second, Handler: time.Second,
		Grace: 200 * time.Millisecond, Drain: 5 * time.Second, Closing: 2 * time.Second,
	})
	var running sync.WaitGroup
	running.Go(func() { e.Run(ctx); invoker.Close() })
	k := &killable{store: s, end: sync.OnceFunc(func() { end(); running.Wait(); _ = s.Close() })}
	t.Cleanup(k.end)
	return k
}

// kill cuts the node off from the database.
func (k *killable) kill(t *testing.T) {
	t.Helper()
	if err := k.store.Close(); err != nil {
		t.Error(err)
	}
	k.end()
}

// shardHit is a request for a shard.
type shardHit struct{ endpoint, index, total, run string }

// shardServers are endpoints that start and stop, each on its own address, and the requests that they got.
type shardServers struct {
	mu      sync.Mutex
	hits    map[string][]shardHit // by event id
	count   int
	came    loop.Signal
	servers map[string]*httptest.Server
}

// serve starts an endpoint, on its former address if it had one.
func (w *shardServers) serve(t *testing.T, id string) {
	t.Helper()
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h := r.Header
		want := fmt.Sprintf(`"shard_index":%s,"shard_total":%s}`, h.Get("Carillon-Shard-Index"), h.Get("Carillon-Shard-Total"))
		if text := string(body); len(text) < len(want) || text[len(text)-len(want):] != want {
			t.Errorf("body %s does not end in %s, as the headers say", text, want)
		}
		w.mu.Lock()
		event := h.Get("Webhook-Id")
		w.hits[event] = append(w.hits[event], shardHit{id, h.Get("Carillon-Shard-Index"), h.Get("Carillon-Shard-Total"), h.Get("Carillon-Run")})
		w.count++
		w.mu.Unlock()
		w.came.Notify()
	})
	server := httptest.NewUnstartedServer(handler)
	address, err := freeport.Address(t.Context()) // no other program gets it while the endpoint is dead
	if old := w.servers[id]; old != nil {
		address = old.Listener.Addr().String()
	}
	if err == nil {
		_ = server.Listener.Close()
		server.Listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", address)
	}
	if err != nil {
		t.Fatal(err)
	}
	server.Start()
	t.Cleanup(server.Close)
	w.servers[id] = server
}

// await waits for a number of further requests.
func (w *shardServers) await(t *testing.T, more int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w.mu.Lock()
	goal := w.count + more
	w.mu.Unlock()
	for {
		w.mu.Lock()
		enough := w.count >= goal
		w.mu.Unlock()
		if enough {
			return
		}
		select {
		case <-w.came:
		case <-ctx.Done():
			t.Fatalf("waited in vain for %d more requests", more)
		}
	}
}

// Broadcasts cover each shard exactly once while endpoints die, drain, register and come back, and nodes are killed. Only a
// shard that was in flight on a killed node, or to an endpoint that died, is sent again, under the same event id.
func TestBroadcastCoversEachShardOnce(t *testing.T) {
	need.Step(t, "fleets")
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		testBroadcastFleet(t, newDatabase(t), 1)
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		testBroadcastFleet(t, pgtest.New(t), 3)
	})
}

func testBroadcastFleet(t *testing.T, database string, nodes int) {
	t.Helper()
	w := &shardServers{hits: map[string][]shardHit{}, came: loop.NewSignal(), servers: map[string]*httptest.Server{}}
	opened, err := store.Open(t.Context(), database, store.Options{Options: db.Options{AlongsideNode: true}})
	if err != nil {
		t.Fatal(err)
	}
	declareBroadcasts(t, opened, w)
	if err := opened.Close(); err != nil {
		t.Fatal(err)
	}
	fleet := make([]*killable, nodes)
	for n := range fleet {
		fleet[n] = startKillable(t, database, fmt.Sprint("node", n))
	}
	s := fleet[nodes-1].store // which is heard where one process has the database
	const some = 40
	w.await(t, some)
	w.servers["e1"].CloseClientConnections()
	w.servers["e1"].Close() // dies
	change := input.Change{Actor: "test"}
	w.await(t, some)
	if _, err := s.DrainEndpoint(t.Context(), "app", "workers", "e2", true, change); err != nil {
		t.Fatal(err)
	}
	w.await(t, some)
	for n := range nodes - 1 { // all but one
		fleet[n].kill(t)
		w.await(t, some)
		if n == 0 {
			startKillable(t, database, "late")
		}
	}
	late := target.Endpoint{ID: "late", StaticEndpoint: target.StaticEndpoint{URL: w.servers["late"].URL}}
	if _, _, err := s.RegisterEndpoint(t.Context(), "app", "workers", late, change); err != nil {
		t.Fatal(err)
	}
	w.await(t, some)
	w.serve(t, "e1") // comes back
	if _, err := s.DrainEndpoint(t.Context(), "app", "workers", "e2", false, change); err != nil {
		t.Fatal(err)
	}
	w.await(t, some)
	if err := s.DeregisterEndpoint(t.Context(), "app", "workers", "late", change); err != nil {
		t.Fatal(err)
	}
	w.await(t, some)
	if _, err := s.PauseJob(t.Context(), "app", "spread", "", true, change); err != nil {
		t.Fatal(err)
	}
	checkBroadcasts(t, s, w, endedRuns(t, s))
}

// declareBroadcasts declares a group of five endpoints, and a job that broadcasts to it four times a second.
func declareBroadcasts(t *testing.T, s *store.Store, w *shardServers) {
	t.Helper()
	change := input.Change{Actor: "test"}
	group := target.EndpointGroup{App: "app", Name: "workers",
		EndpointGroupSpec: target.EndpointGroupSpec{Endpoints: map[string]target.StaticEndpoint{}}}
	group.SetDefaults()
	group.Strategy = target.Broadcast
	for n := range 5 {
		id := fmt.Sprintf("e%d", n)
		w.serve(t, id)
		group.Endpoints[id] = target.StaticEndpoint{URL: w.servers[id].URL}
	}
	w.serve(t, "late")
	group.Registration = &target.Registration{Networks: []string{"127.0.0.0/8"}, Ports: []int{portOf(t, w.servers["late"])}}
	group.Registration.SetDefaults()
	job := dispatcher.Job{App: "app", Name: "spread", JobSpec: dispatcher.JobSpec{Enabled: true, Triggers: map[string]dispatcher.Trigger{}}}
	for n := range 4 {
		trigger := dispatcher.Trigger{}
		trigger.SetDefaults()
		trigger.Expression = "rate(1s)"
		job.Triggers[fmt.Sprintf("t%d", n)] = trigger
	}
	job.Retry = run.Retry{
		MaxAttempts: 5, Base: input.Duration(time.Second), Cap: input.Duration(time.Minute),
		MaxAge: input.Duration(10 * time.Minute),
	}
	job.Target.Group = &target.GroupTarget{Name: "workers", Path: "/run"}
	job.Target.Group.SetDefaults()
	job.Target.Group.Timeout = input.Duration(10 * time.Minute) // a slow machine sends nothing again
	_, _, err := s.PutApp(t.Context(), access.App{Name: "app", AppSpec: access.AppSpec{Enabled: true}}, change)
	if err == nil {
		_, _, err = s.PutGroup(t.Context(), group, change)
	}
	if err == nil {
		_, _, err = s.PutJob(t.Context(), job, change)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// endedRuns waits until all runs of the app have ended, and returns them.
func endedRuns(t *testing.T, s *store.Store) (runs []run.Run) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for tick := time.Tick(200 * time.Millisecond); ; {
		var err error
		if runs, err = s.Runs(ctx, dispatcher.RunQuery{App: "app", Page: input.Page{Limit: 1000}}); err != nil {
			t.Fatal(err)
		}
		live := slices.IndexFunc(runs, func(run run.Run) bool { return run.EndedAt == nil })
		if live < 0 {
			return runs
		}
		select {
		case <-tick:
		case <-ctx.Done():
			t.Fatalf("run %s is still %s", runs[live].ID, runs[live].State)
		}
	}
}

// checkBroadcasts compares the requests that the endpoints got with the runs.
func checkBroadcasts(t *testing.T, s *store.Store, w *shardServers, parents []run.Run) {
	t.Helper()
	totals := map[int]int{}
	for _, parent := range parents {
		if parent.State != run.Succeeded {
			t.Errorf("broadcast %s is %s: %s", parent.ID, parent.State, parent.Error)
		}
		parts, err := s.Runs(t.Context(), dispatcher.RunQuery{App: "app", Parent: parent.ID, Page: input.Page{Limit: 100}})
		if err != nil {
			t.Fatal(err)
		}
		if len(parts) == 0 || len(parts) != parts[0].Shard.Total {
			t.Fatalf("broadcast %s has %d shards, want as many as they say", parent.ID, len(parts))
		}
		totals[len(parts)]++
		for i, shard := range slices.Backward(parts) {
			hits := w.hits[shard.EventID]
			if index := len(parts) - 1 - i; shard.Shard.Index != index || len(hits) == 0 || len(hits) > shard.Attempt {
				t.Errorf("shard %s of %+v: %d requests in %d attempts", shard.ID, shard.Shard, len(hits), shard.Attempt)
			}
			if len(hits) > 1 {
				checkRepeats(t, s, shard.ID)
			}
			for _, hit := range hits {
				want := shardHit{hit.endpoint, strconv.Itoa(shard.Shard.Index), strconv.Itoa(shard.Shard.Total), shard.ID}
				if hit != want {
					t.Errorf("shard %s: the request said %+v, want %+v", shard.ID, hit, want)
				}
				// These two were up all the time.
				if of := shard.Shard.Endpoint; (of == "e0" || of == "e4") && hit.endpoint != of {
					t.Errorf("shard %s was made for %s and went to %s", shard.ID, of, hit.endpoint)
				}
			}
			delete(w.hits, shard.EventID)
		}
	}
	if len(w.hits) > 0 {
		t.Errorf("requests of no shard: %v", w.hits)
	}
	if len(totals) < 2 {
		t.Errorf("broadcasts by the number of their shards: %v, want several numbers", totals)
	}
}

// checkRepeats checks that a shard that was sent more than once was in flight when its node or endpoint e1 died.
func checkRepeats(t *testing.T, s *store.Store, id string) {
	t.Helper()
	r, err := s.Run(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range r.Attempts {
		died := a.State == run.Lost || a.Response != nil && a.Response.Endpoint == "e1"
		if a.State != run.Succeeded && !died {
			t.Errorf("attempt %d of shard %s is %s (%s) with response %+v, want it sent again only after its node or e1 died",
				a.Attempt, id, a.State, a.Error, a.Response)
		}
	}
}
