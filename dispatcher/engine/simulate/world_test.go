package simulate

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/engine"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// world is some nodes on one store, and a record of their requests.
type world struct {
	t       *testing.T
	seed    uint64
	store   *store.Store
	db      *sql.DB // the store's, for direct access
	options engine.Options
	nodes   []*node
	begun   time.Time
	// declared are the jobs whose ledger is checked.
	declared map[string]bool
	// fenced makes each request check in the store that its node has its run.
	fenced bool
	// longest is how long a slow call to the store takes at most.
	longest time.Duration
	// response draws the response of a target; nil: at once, with success.
	response func(job string, r *rand.Rand) (takes time.Duration, status int)

	mu       sync.Mutex
	skew     time.Duration // of the database's clock from that of all nodes
	setBy    time.Duration // the part of skew that came from setBack
	furthest time.Time     // the latest time that the database's clock has shown
	requests map[attempt]time.Time
	sent     map[run.Key]int
	serial   map[string]map[attempt]run.NodeID // requests in flight of jobs that have one slot
}

// attempt identifies a request.
type attempt struct {
	run.Key
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
// the data need not outlive the simulation.
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
	file := filepath.Join(dir, "carillon.db")
	database := "sqlite:" + file
	if err := store.Migrate(t.Context(), database); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), database, store.Options{Options: db.Options{Shared: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	db, err := sql.Open("sqlite", "file:"+file+"?mode=ro&_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	o.Logger = slog.New(slog.DiscardHandler)
	w := &world{t: t, seed: seed, store: s, db: db, options: o, longest: 2 * time.Second, begun: time.Now(), declared: map[string]bool{},
		requests: map[attempt]time.Time{}, sent: map[run.Key]int{}, serial: map[string]map[attempt]run.NodeID{}}
	const retention = input.Duration(10 * 365 * 24 * time.Hour)
	app := access.App{Name: "app", AppSpec: access.AppSpec{Enabled: true, Retention: retention,
		Bounds: &target.Bounds{Quotas: target.Quotas{Retention: retention}}}}
	if _, _, err := s.PutApp(t.Context(), app, byTest); err != nil {
		t.Fatal(err)
	}
	return w
}

var byTest = input.Change{Actor: "simulation", Operator: true}

// memory is a directory in memory, or empty for the default.
func memory() string {
	const shm = "/dev/shm"
	if _, err := os.Stat(shm); err != nil {
		return ""
	}
	return shm
}

// clock is the database's.
func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now().Add(w.skew)
	if now.After(w.furthest) {
		w.furthest = now
	}
	return now
}

// setBack sets the database's clock back.
func (w *world) setBack(by time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.skew -= by
	w.setBy -= by
}

// declare puts a job with one trigger.
func (w *world) declare(name, expression string, change func(*dispatcher.Job, *dispatcher.Trigger)) {
	w.t.Helper()
	trigger := dispatcher.Trigger{}
	trigger.SetDefaults()
	trigger.Expression = expression
	job := dispatcher.Job{App: "app", Name: name,
		JobSpec: dispatcher.JobSpec{Enabled: true, JobPolicies: dispatcher.JobPolicies{Delivery: dispatcher.AtLeastOnce}}}
	job.Target.Webhook = &target.Webhook{}
	job.Target.Webhook.SetDefaults()
	job.Target.Webhook.URL = "http://127.0.0.1/"
	if change != nil {
		change(&job, &trigger)
	}
	job.Triggers = map[string]dispatcher.Trigger{"t": trigger}
	if _, _, err := w.store.PutJob(w.t.Context(), job, input.Change{Actor: byTest.Actor, Now: w.clock()}); err != nil {
		w.t.Fatal(err)
	}
	if job.Slots() == 1 {
		w.serial[name] = map[attempt]run.NodeID{}
	}
	// The instants of a fixed delay follow from its runs.
	w.declared[name] = !strings.HasPrefix(expression, "delay(")
}

// start adds a node, or starts one that is down.
func (n *node) start(rate int64) {
	n.store = newFaulty(n.world, n.name, n.seed^uint64(time.Since(n.begun))) // wall clock: virtual, it is called in a bubble
	n.store.rate.Store(rate)
	options := n.options
	options.Name = n.name
	e := engine.New(n.store, &invoker{node: n, store: n.store}, options)
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

// kill ends a node as kill -9 does: its later calls have no effect.
func (n *node) kill() {
	n.store.set(&n.store.gone, true)
	n.store.thaw()
	n.stop()
	<-n.done
	n.store = nil
}

// drain shuts a node down gracefully.
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
}

// Invoke notes the request, and responds after a while. A dead node sends nothing.
func (i *invoker) Invoke(ctx context.Context, call target.Call) run.Outcome {
	began := time.Now()
	if i.store.dead() {
		return run.Outcome{State: run.Cancelled, StartedAt: began, EndedAt: began}
	}
	over := i.request(call)
	outcome := run.Outcome{State: run.Succeeded, HTTPStatus: http.StatusOK, StartedAt: began}
	if i.response != nil {
		r := rand.New(rand.NewPCG(i.seed^uint64(call.Key.TriggerID), uint64(call.Key.ScheduledAt.UnixMilli())+uint64(call.Attempt)))
		var takes time.Duration
		if takes, outcome.HTTPStatus = i.response(call.Job, r); outcome.HTTPStatus != http.StatusOK {
			outcome.State, outcome.Class = run.Failed, run.ClassHTTP5xx
		}
		if err := wait(ctx, takes); err != nil {
			outcome.State, outcome.HTTPStatus = run.Cancelled, 0
		}
	}
	over()
	i.store.gate()
	outcome.EndedAt = time.Now()
	return outcome
}

// request checks the rules for every request when it is sent, and returns a function to call when its connection ends.
func (w *world) request(call target.Call) (over func()) {
	key, now := attempt{call.Key, call.Attempt}, w.clock()
	var r run.Run
	var dead map[run.NodeID]bool
	if w.fenced {
		var err error
		if r, err = w.store.Run(w.t.Context(), call.Key.String()); err != nil {
			w.t.Errorf("%s: sent without a run: %v", call.Key, err)
			return func() {}
		}
		if w.serial[call.Job] != nil {
			dead = w.dead()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	sent, twice := w.requests[key]
	w.requests[key] = now
	w.sent[call.Key]++
	what := fmt.Sprintf("%s/%s at %s, attempt %d", call.Job, call.Trigger, input.FormatInstant(call.Key.ScheduledAt), call.Attempt)
	furthest := w.furthest
	if call.Key.Kind == run.KindCatchUp {
		// The node used its last view of the clock, from before it was set back.
		furthest = now.Add(-w.setBy)
	}
	switch {
	case twice:
		w.t.Errorf("%s: sent at %s and again at %s", what, sent, now)
	case furthest.Before(call.Key.ScheduledAt):
		w.t.Errorf("%s: sent early, at %s", what, now)
	case w.fenced && r.Attempt != call.Attempt:
		w.t.Errorf("%s: sent at %s, when another node had the run, in attempt %d", what, now, r.Attempt)
	case call.Delivery == dispatcher.AtMostOnce && w.sent[call.Key] > 1:
		w.t.Errorf("%s: wanted at most once, and sent %d times", what, w.sent[call.Key])
	}
	serial := w.serial[call.Job]
	if serial == nil || r.Node == nil {
		return func() {}
	}
	for other, node := range serial {
		if !dead[node] {
			w.t.Errorf("%s: sent at %s, when %s, attempt %d was still in flight from a node that is alive", what, now, other.Key, other.number)
		}
	}
	serial[key] = *r.Node
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(serial, key)
	}
}

// dead are the nodes that are dead in the store.
func (w *world) dead() map[run.NodeID]bool {
	nodes, err := w.store.Nodes(w.t.Context())
	if err != nil {
		w.t.Error(err)
	}
	dead := map[run.NodeID]bool{}
	for _, n := range nodes {
		dead[n.ID] = n.State == dispatcher.NodeDead
	}
	return dead
}
