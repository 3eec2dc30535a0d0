package engine

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/engine/plan"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/sqlitetest"
)

func TestMain(m *testing.M) {
	if os.Getenv(victimEnv) != "" {
		serveVictim()
		return
	}
	goleak.VerifyTestMain(m)
}

// These tests call the engine's steps by hand, at a time a little in the past: a scheduled time can be claimed only
// after the database's clock has passed it.

// patience is how long a test waits: longer than any machine takes, even with the race detector.
const patience = 10 * time.Minute

// rig is an engine over a real SQLite store. Its calls are recorded and succeed.
type rig struct {
	*Engine
	store *store.Store // without the faults of the test
	t     *testing.T
	now   time.Time // by the test's clock
	file  string    // of the database
	// registry has the metrics of the store and of the engine.
	registry *prometheus.Registry
	mu       sync.Mutex
	calls    []target.Call
	// invoke replaces a call; nil: it succeeds.
	invoke func(context.Context, target.Call) run.Outcome
}

func (r *rig) Invoke(ctx context.Context, call target.Call) run.Outcome {
	r.mu.Lock()
	r.calls = append(r.calls, call)
	r.mu.Unlock()
	now := time.Now()
	outcome := run.Outcome{State: run.Succeeded, HTTPStatus: 200}
	if r.invoke != nil {
		outcome = r.invoke(ctx, call)
	}
	if outcome.EndedAt.IsZero() {
		outcome.StartedAt, outcome.EndedAt = now, time.Now()
	}
	return outcome
}

// newDatabase returns the URL of an empty database, which is in memory if the machine has room there: tests of the
// engine do not need data that outlives a crash, and each commit would wait for the disk.
func newDatabase(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "carillon-engine-")
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return sqlitetest.At(t, filepath.Join(dir, "carillon.db"))
}

// newRig returns a registered engine with a running pool and recorder, but without its loops. wrap puts faults around
// the store; nil: none.
func newRig(t *testing.T, wrap func(Store) Store) *rig {
	t.Helper()
	database := newDatabase(t)
	registry := prometheus.NewRegistry()
	s, err := store.Open(t.Context(), database, store.Options{
		Options: db.Options{Metrics: registry}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	wrapped := Store(s)
	if wrap != nil {
		wrapped = wrap(s)
	}
	now := time.Now().UTC().Truncate(time.Second).Add(-20 * time.Second)
	r := &rig{store: s, t: t, file: strings.TrimPrefix(database, "sqlite:"), now: now, registry: registry}
	r.Engine = New(wrapped, r, Options{
		Name: "test", Logger: slog.New(slog.DiscardHandler), Pool: pool.Options{Workers: 8, Queue: 56}, Metrics: registry,
		DeadAfter: 20 * time.Minute, // a rig sends no heartbeats, and a slow disk may make a test last for minutes
	})
	if err := r.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	life, end := context.WithCancel(context.WithoutCancel(t.Context()))
	recording := make(chan struct{})
	go func() { r.recorder.run(life); close(recording) }()
	beginning, slotting, reading := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() { r.inputs.run(life); close(reading) }()
	go func() { r.begins.run(life); close(beginning) }()
	go func() { r.slots.run(life); close(slotting) }()
	r.pool.Start(life)
	t.Cleanup(func() {
		r.drain(life, time.Now(), func() {})
		end()
		<-recording
		<-beginning
		<-slotting
		<-reading
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, _, err := s.PutApp(t.Context(), access.App{Name: "app", AppSpec: access.AppSpec{Enabled: true}},
		input.Change{Actor: "test", Now: r.now}); err != nil {
		t.Fatal(err)
	}
	return r
}

// listens lets the node hear notifications until the end of the test. The first one means that listening has begun.
func (r *rig) listens() {
	r.t.Helper()
	listening, end := context.WithCancel(context.WithoutCancel(r.t.Context()))
	began, heard := make(chan struct{}), make(chan struct{})
	var once sync.Once
	go func() {
		defer close(heard)
		_ = r.store.Listen(listening, func(n dispatcher.Notification) {
			once.Do(func() { close(began) })
			r.hear(n)
		})
	}()
	r.t.Cleanup(func() { end(); <-heard })
	<-began
}

// cutOff waits until an attempt is cut off, and returns its outcome.
func (r *rig) cutOff(attempt context.Context) run.Outcome {
	limited, cancel := context.WithTimeout(attempt, patience)
	defer cancel()
	<-limited.Done()
	if attempt.Err() == nil {
		r.t.Error("the attempt goes on after its run has ended")
	}
	return run.Outcome{State: run.Cancelled, Class: run.ClassCancelled, Error: "cut off"}
}

// declare stores a job with one trigger, at the test's time.
func (r *rig) declare(name, expression string, change func(*dispatcher.Trigger)) {
	r.t.Helper()
	trigger := dispatcher.Trigger{}
	trigger.SetDefaults()
	trigger.Expression = expression
	trigger.MisfireAfter = input.Duration(time.Hour) // a slow machine misses nothing
	if change != nil {
		change(&trigger)
	}
	job := dispatcher.Job{App: "app", Name: name,
		JobSpec: dispatcher.JobSpec{Enabled: true, Triggers: map[string]dispatcher.Trigger{"only": trigger}}}
	job.Target.Webhook = &target.Webhook{URL: "http://127.0.0.1/", Method: "POST", Timeout: target.DefaultTimeout}
	if _, _, err := r.store.PutJob(r.t.Context(), job, input.Change{Actor: "test", Now: r.now}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) poll(until time.Duration) int {
	r.t.Helper()
	n, err := r.plan.Poll(r.t.Context(), r.now, r.now.Add(until))
	for more := true; more && err == nil; {
		more, err = r.plan.PlanAhead(r.t.Context(), r.now.Add(until))
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// round makes a round of the chores at a time, as if no other node had made one.
func (r *rig) round(ctx context.Context, now time.Time) error {
	r.exec(`DELETE FROM locks`)
	return r.chores.Round(ctx, now)
}

// settle settles the misfires, as if no other node had done so, and as after a change of all triggers.
func (r *rig) settle(ctx context.Context, now time.Time) error {
	r.exec(`DELETE FROM locks`)
	r.plan.Floors.Misses.Reset()
	return r.chores.SettleMisfires(ctx, now)
}

// anyQueue admits all fires, and keep releases none.
func anyQueue(pool.QueueKey) pool.Admission { return pool.Admitted }
func keep(...pool.QueueKey)                 {}

// due returns the first fire that is due within some time.
func (r *rig) due(within time.Duration) plan.Entry {
	r.t.Helper()
	due, err := r.store.Due(r.t.Context(), dispatcher.DueQuery{Until: r.now.Add(within), Now: r.now, Limit: 1})
	if err != nil || len(due) != 1 {
		r.t.Fatalf("due = %v, %v, want one trigger", due, err)
	}
	entries, err := r.plan.Evaluate(r.t.Context(), due)
	if err != nil || len(entries) != 1 {
		r.t.Fatalf("entries = %v, %v, want one", entries, err)
	}
	return entries[0]
}

// quiet waits until all claimed runs are recorded.
func (r *rig) quiet() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	for r.pool.Held() > 0 {
		select {
		case <-r.pool.Freed(): // also when the last run leaves
		case <-ctx.Done():
			r.t.Fatalf("%d runs are still held", r.pool.Held())
		}
	}
	if !r.recorder.drain(patience) {
		r.t.Fatal("outcomes are not recorded")
	}
}

// settled is quiet, and returns the runs, oldest first.
func (r *rig) settled() []run.Run {
	r.t.Helper()
	r.quiet()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience) // longer than the store's own limit
	defer cancel()
	found, err := r.store.Runs(ctx, dispatcher.RunQuery{App: "app", Page: input.Page{Limit: 1000}})
	if err != nil {
		r.t.Fatal(err)
	}
	slices.Reverse(found)
	return found
}

func offsets(r *rig, found []run.Run) []string {
	var got []string
	for _, run := range found {
		got = append(got, fmt.Sprintf("%s %s %s #%d", run.ScheduledAt.Sub(r.now), run.Kind, run.State, run.Attempt))
	}
	return got
}
