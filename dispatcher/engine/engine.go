package engine

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// Invoker makes one attempt: at most one request on the wire.
type Invoker interface {
	Invoke(ctx context.Context, call dispatcher.Call) dispatcher.Outcome
}

// Options tunes an Engine. The zero value works.
type Options struct {
	// Name is the node's label; Version that of the program. Both are only shown.
	Name, Version string
	// Apps are those that the node serves; empty: all.
	Apps []string
	// Labels are what the node offers to jobs that require some.
	Labels dispatcher.Labels
	// Window is the look-ahead and rhythm of the poll; default 5s.
	Window time.Duration
	// Handler is the rhythm of the cluster and misfire handler; default 15s.
	Handler time.Duration
	// Heartbeat is the rhythm of the node's heartbeat; default 5s.
	Heartbeat time.Duration
	// DeadAfter is how long a heartbeat may stay out; default 60s.
	DeadAfter time.Duration
	// Lead is how far ahead of its instant a fire is claimed; default 50ms.
	Lead time.Duration
	// Grace is how long a fire is left to the node that is preferred for it; default 1s.
	Grace time.Duration
	// Purge is the rhythm of the clean-up of history, give or take a tenth; default 10m.
	PurgeInterval time.Duration
	// Drain is how long a shutdown waits for runs in flight; default 25s.
	Drain time.Duration
	// Workers is how many attempts are made at once, of those that do not take long; default
	// 512. There are MinWorkers always, and more as runs wait; default 16. Attempts that take
	// longer than half a second, and jobs that often do, move to a share of twice as many.
	Workers, MinWorkers int
	// AppWorkers and HostWorkers are how many attempts are made at once for one app, default
	// three quarters of Workers, and to one host, default half.
	AppWorkers, HostWorkers int
	// Queue is how many claimed runs may wait for a worker; default 2048.
	Queue int
	// BreakerFailures is how many failures of a host in a row make the node leave it alone for a
	// while; default 20, less than 0: never.
	BreakerFailures int
	// HostRate is how many requests per second the node makes to one host; 0: no limit.
	HostRate int
	// Batch is how many fires one statement claims or records at most; default 500.
	Batch int
	// Logger defaults to slog.Default().
	Logger *slog.Logger
	// Metrics is where the engine's metrics are registered; default a registry of its own,
	// which nobody reads.
	Metrics prometheus.Registerer
	// OnOutcome is told of every attempt's end, from the attempt's goroutine; nil: nobody.
	OnOutcome func(dispatcher.Call, dispatcher.Outcome)
}

func (o Options) withDefaults() Options {
	set := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	set(&o.Window, 5*time.Second)
	set(&o.Handler, 15*time.Second)
	set(&o.Heartbeat, 5*time.Second)
	set(&o.DeadAfter, 60*time.Second)
	set(&o.Lead, 50*time.Millisecond)
	set(&o.Grace, time.Second)
	set(&o.PurgeInterval, 10*time.Minute)
	set(&o.Drain, 25*time.Second)
	count := func(n *int, value int) {
		if *n == 0 {
			*n = value
		}
	}
	count(&o.Workers, 512)
	count(&o.MinWorkers, min(16, o.Workers))
	count(&o.AppWorkers, max(o.Workers*3/4, 1))
	count(&o.HostWorkers, max(o.Workers/2, 1))
	count(&o.Queue, 2048)
	count(&o.BreakerFailures, 20)
	count(&o.Batch, 500)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Metrics == nil {
		o.Metrics = prometheus.NewRegistry()
	}
	return o
}

// Engine is one dispatcher node.
type Engine struct {
	store   dispatcher.Store
	invoker Invoker
	opts    Options
	log     *slog.Logger

	clock     *clock
	fleet     *fleet
	jobs      *jobs
	calendars *calendars
	schedules *schedule.Cache
	timeline  *timeline
	pool      *pool
	begins    *begins // of at_most_once jobs
	slots     *slots
	recorder  *recorder
	delays    *delays
	retries   *retries
	gate      *gate
	metrics   *metrics
	work      tally
	tokens    *tokens
	strays    map[attemptKey]time.Time // when first missed; see reclaim
	rolledTo  int64                    // the last job whose state was rolled up; 0: begin again

	lost      atomic.Bool   // own fires, since the last sweep
	wakePoll  chan struct{} // a hint came: look at the database now
	wakeAdopt chan struct{} // runs may wait to be adopted
}

// New returns an Engine over store that calls targets through invoker. It starts nothing;
// call Run.
func New(store dispatcher.Store, invoker Invoker, options Options) *Engine {
	o := options.withDefaults()
	e := &Engine{
		store: store, invoker: invoker, opts: o, log: o.Logger,
		clock:     newClock(store),
		fleet:     newFleet(o.DeadAfter),
		jobs:      newJobs(store),
		calendars: newCalendars(store),
		schedules: schedule.NewCache(10_000),
		tokens:    newTokens(),
		wakePoll:  make(chan struct{}, 1),
		wakeAdopt: make(chan struct{}, 1),
	}
	e.pool = newPool(poolSize{least: o.MinWorkers, most: o.Workers, queue: o.Queue, perApp: o.AppWorkers, perHost: o.HostWorkers})
	e.timeline = newTimeline(e.pool.slow.is)
	e.delays, e.begins = newDelays(), newIntents(store, "begin runs", dispatcher.Store.Begin, o.Batch, o.Logger)
	e.slots = newSlots(store, o.Batch, o.Logger)
	e.retries, e.gate = newRetries(), newGate(o.BreakerFailures, o.HostRate)
	e.recorder = newRecorder(store, e.recorded, e.pool.busy, o.Batch, o.Logger)
	e.metrics = newMetrics(e, o.Metrics)
	e.pool.hold, e.pool.fire, e.pool.until = e.hold, e.fire, e.clock.until
	return e
}

// Run dispatches until ctx ends, then drains. A database that is away it waits for, at the start
// as later.
func (e *Engine) Run(ctx context.Context) {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := e.start(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		e.logIf(ctx, "start", err)
		sleep(ctx, jittered(pause))
	}
	// Heartbeats and records must go on while runs in flight finish.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	heartbeats, endHeartbeats := context.WithCancel(life)
	defer endHeartbeats()
	var claiming, beating, living sync.WaitGroup
	for _, loop := range []func(context.Context){e.listenLoop, e.pollLoop, e.sweepLoop, e.claimLoop, e.handlerLoop, e.adoptLoop, e.retryLoop, e.delayLoop, e.slowLoop, e.purgeLoop} {
		claiming.Go(func() { loop(ctx) })
	}
	beating.Go(func() { e.heartbeatLoop(heartbeats) })
	living.Go(func() { e.recorder.run(life) })
	living.Go(func() { e.begins.run(life) })
	living.Go(func() { e.slots.run(life) })
	e.pool.start(life)

	<-ctx.Done()
	// Before whatever the database may keep waiting for: it may be why we are stopped.
	e.pool.halt()
	claiming.Wait()
	e.drain(life, func() {
		// A heartbeat after the node has left would register it again.
		endHeartbeats()
		beating.Wait()
	})
	end()
	living.Wait()
}

// start learns who and when we are.
func (e *Engine) start(ctx context.Context) error {
	installation, err := e.store.Installation(ctx)
	if err != nil {
		return fmt.Errorf("read installation: %w", err)
	}
	e.jobs.installation = installation
	if err := e.clock.sample(ctx); err != nil {
		return fmt.Errorf("read database clock: %w", err)
	}
	if err := e.register(ctx, dispatcher.NodeActive); err != nil {
		return fmt.Errorf("register node: %w", err)
	}
	return nil
}

// Ready returns nil while the node can dispatch, else what keeps it from it.
func (e *Engine) Ready() error {
	switch {
	case e.fleet.id() == 0:
		return errors.New("the node is not registered yet")
	case !e.fleet.leased():
		return errors.New("the node's lease has run out: its heartbeats do not reach the database")
	case e.clock.offset().Abs() > mostSkew:
		return fmt.Errorf("the node's clock is %s off the database's; set it right", e.clock.offset().Round(time.Second))
	}
	return nil
}

// Node returns the node's id, 0 before it is registered.
func (e *Engine) Node() dispatcher.NodeID { return e.fleet.id() }

// drain ends the node's work: what was not begun is handed back, what is in flight may
// finish until the drain time has passed. What then still runs is cut off unrecorded: only
// the next node that adopts it can say that its outcome is unknown. What then still waits for the
// database's leave to begin is handed back, too. stopHeartbeats is called before the node leaves.
func (e *Engine) drain(ctx context.Context, stopHeartbeats func()) {
	id, unsent := e.fleet.id(), e.pool.stop()
	failpoint.Hit(failpoint.InDrain)
	told := make(chan struct{})
	go func() { // what is in flight has its time, whatever becomes of this
		defer close(told)
		e.handBack(ctx, unsent)
		_, err := e.store.SetNodeState(ctx, id, dispatcher.NodeDraining, dispatcher.Change{Actor: "system"})
		e.logIf(ctx, "announce drain", err)
	}()
	cut, late := e.pool.wait(e.opts.Drain)
	<-told
	var back sync.WaitGroup
	back.Go(func() { e.handBack(ctx, late) }) // beside what must not wait for it
	recorded := e.recorder.drain(recordPatience)
	back.Wait()
	stopHeartbeats()
	e.logIf(ctx, "leave the fleet", e.store.Deregister(ctx, id))
	e.log.InfoContext(ctx, "drained", "node", id.String(), "handed_back", len(unsent)+len(late), "cut_off", cut, "recorded", recorded)
}

func (e *Engine) handBack(ctx context.Context, unsent []dispatcher.HeldRun) {
	if len(unsent) > 0 {
		e.logIf(ctx, "hand back unsent runs", e.store.Release(ctx, unsent))
	}
}

// recordPatience is how long a shutdown waits for the database to take the last outcomes.
const recordPatience = 10 * time.Second

func (e *Engine) logIf(ctx context.Context, what string, err error) {
	if err != nil {
		e.log.ErrorContext(ctx, "step failed", "step", what, "node", e.fleet.id().String(), "err", err)
	}
}

// every calls step at once, then at each interval or wake, until ctx ends, but not more
// often than the shortest pause. A step's error is logged; the next call is the retry.
func (e *Engine) every(ctx context.Context, name string, interval time.Duration, wake <-chan struct{}, step func(context.Context, time.Time) error) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		pause := shortestPause
		if err := step(ctx, e.clock.now()); err != nil && ctx.Err() == nil {
			e.log.ErrorContext(ctx, "step failed", "step", name, "node", e.fleet.id().String(), "err", err)
			pause += jittered(min(interval, time.Second)) / 2 // nodes do not come back all at once
		}
		sleep(ctx, pause)
		select {
		case <-ctx.Done():
		case <-ticker.C:
		case <-wake:
		}
	}
}

// shortestPause keeps a flood of hints from becoming a flood of queries.
const shortestPause = 20 * time.Millisecond

// wake makes a loop go round once more; a wake already pending is enough.
func wake(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// randomBelow returns a random part of a pause, which is more than 0. It draws from the source of
// ids, which simulations replace by one that repeats.
func randomBelow(pause time.Duration) time.Duration {
	return time.Duration(random63() % int64(pause))
}

// randomShare returns a random number from 0 to below 1.
func randomShare() float64 { return float64(random63()>>10) / (1 << 53) }

// random63 returns a positive random number: an id or a token.
func random63() int64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return int64(binary.BigEndian.Uint64(b[:])>>1) | 1
}
