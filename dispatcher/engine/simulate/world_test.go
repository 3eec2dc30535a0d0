package simulate

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine"
	"github.com/carillon-dev/carillon/dispatcher/store"
)

// world is some nodes on one store, and what came of it.
type world struct {
	t       *testing.T
	seed    uint64
	store   dispatcher.Store
	options engine.Options
	nodes   []*node
	begun   time.Time
	// declared are the jobs that the ledger is compared with.
	declared map[string]bool
	// fenced has the store asked at each request whose run it is.
	fenced bool

	mu       sync.Mutex
	requests map[attempt]time.Time
	sent     map[dispatcher.RunKey]int
	log      io.Writer // of what was done to the nodes; for replays
	// latency draws how long a target takes; nil: no time.
	latency func(*rand.Rand) time.Duration
}

// attempt identifies a request.
type attempt struct {
	dispatcher.RunKey
	number int
}

// node is one node, through all its incarnations.
type node struct {
	*world
	name  string
	store *faulty // nil while the node is down
	stop  context.CancelFunc
	done  chan struct{}
}

// newWorld makes a world without nodes, over a database in memory if the machine has room there:
// what a simulation writes need not outlive it.
func newWorld(t *testing.T, seed uint64, o engine.Options) *world {
	t.Helper()
	dir, err := os.MkdirTemp(memory(), "carillon-simulation-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	database := "sqlite:" + filepath.Join(dir, "carillon.db")
	if err := store.Migrate(t.Context(), database); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), database, store.Options{Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	o.Logger = slog.New(slog.DiscardHandler)
	w := &world{t: t, seed: seed, store: s, options: o, begun: time.Now(), declared: map[string]bool{}, requests: map[attempt]time.Time{}, sent: map[dispatcher.RunKey]int{}, log: io.Discard}
	if _, err := s.PutApp(t.Context(), dispatcher.App{Name: "app", Enabled: true, Weight: 1, Retention: dispatcher.Duration(10 * 365 * 24 * time.Hour)}, byTest); err != nil {
		t.Fatal(err)
	}
	return w
}

var byTest = dispatcher.Change{Actor: "simulation"}

// memory is a directory in memory, or empty for the default.
func memory() string {
	const shm = "/dev/shm"
	if _, err := os.Stat(shm); err != nil {
		return ""
	}
	return shm
}

// declare puts a job with one trigger.
func (w *world) declare(name, expression string, delivery dispatcher.Delivery, change func(*dispatcher.Trigger)) {
	w.t.Helper()
	trigger := dispatcher.Trigger{}
	trigger.SetDefaults()
	trigger.Expression = expression
	if change != nil {
		change(&trigger)
	}
	job := dispatcher.Job{App: "app", Name: name, Enabled: true, Delivery: delivery, Triggers: map[string]dispatcher.Trigger{"t": trigger}}
	job.Target.Webhook = &dispatcher.Webhook{}
	job.Target.Webhook.SetDefaults()
	job.Target.Webhook.URL = "http://127.0.0.1/"
	if _, err := w.store.PutJob(w.t.Context(), job, byTest); err != nil {
		w.t.Fatal(err)
	}
	// The instants of a fixed delay follow from its runs.
	w.declared[name] = !strings.HasPrefix(expression, "delay(")
}

// start adds a node, or starts one that is down.
func (n *node) start(rate int64) {
	n.store = newFaulty(n.world.store, n.name, n.seed^uint64(time.Since(n.begun)))
	n.store.rate.Store(rate)
	options := n.options
	options.Name = n.name
	e := engine.New(n.store, &invoker{node: n, store: n.store, rand: rand.New(rand.NewPCG(n.seed, uint64(time.Since(n.begun))))}, options)
	ctx, stop := context.WithCancel(context.WithoutCancel(n.t.Context()))
	n.stop, n.done = stop, make(chan struct{})
	go func() {
		defer close(n.done)
		e.Run(ctx)
	}()
}

func (w *world) add(name string, rate int64) *node {
	n := &node{world: w, name: name}
	w.nodes = append(w.nodes, n)
	n.start(rate)
	return n
}

// kill ends a node as kill -9 does: nothing that it still does has an effect.
func (n *node) kill() {
	n.store.set(&n.store.gone, true)
	n.store.thaw()
	n.stop()
	<-n.done
	n.store = nil
}

// drain ends a node in good order.
func (n *node) drain() {
	n.store.thaw()
	n.stop()
	<-n.done
	n.store = nil
}

// invoker is the targets as a node sees them.
type invoker struct {
	*node
	store *faulty
	mu    sync.Mutex
	rand  *rand.Rand
}

// Invoke notes the request, and answers after a while. Who is dead sends nothing.
func (i *invoker) Invoke(ctx context.Context, call dispatcher.Call) dispatcher.Outcome {
	began := time.Now()
	i.store.mu.Lock()
	gone := i.store.gone
	i.store.mu.Unlock()
	if gone {
		return dispatcher.Outcome{State: dispatcher.RunCancelled, StartedAt: began, EndedAt: began}
	}
	i.world.request(call, began)
	if i.latency != nil {
		i.mu.Lock()
		takes := i.latency(i.rand)
		i.mu.Unlock()
		select {
		case <-time.After(takes):
		case <-ctx.Done():
		}
	}
	i.store.gate()
	return dispatcher.Outcome{State: dispatcher.RunSucceeded, HTTPStatus: 200, StartedAt: began, EndedAt: time.Now()}
}

// request checks what must hold of every request as it is sent.
func (w *world) request(call dispatcher.Call, now time.Time) {
	var run dispatcher.Run
	var err error
	if w.fenced {
		run, err = w.store.Run(w.t.Context(), call.Key.String())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	key := attempt{call.Key, call.Attempt}
	before, twice := w.requests[key]
	w.requests[key] = now
	w.sent[call.Key]++
	what := fmt.Sprintf("%s/%s at %s, attempt %d", call.Job, call.Trigger, dispatcher.FormatInstant(call.Key.ScheduledAt), call.Attempt)
	switch {
	case err != nil:
		w.t.Errorf("%s: sent without a run: %v", what, err)
	case twice:
		w.t.Errorf("%s: sent at %s and again at %s", what, before, now)
	case now.Before(call.Key.ScheduledAt):
		w.t.Errorf("%s: sent early, at %s", what, now)
	case w.fenced && run.Attempt != call.Attempt:
		w.t.Errorf("%s: sent at %s, when the run was another's, in attempt %d", what, now, run.Attempt)
	case run.State == dispatcher.RunRunning && w.sent[call.Key] > 1:
		w.t.Errorf("%s: wanted once at most, and sent %d times", what, w.sent[call.Key])
	}
}
