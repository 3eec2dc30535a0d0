package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/backoff"
	"github.com/carillon-dev/carillon/dispatcher/engine/chores"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/engine/plan"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// Engine is one dispatcher node.
type Engine struct {
	store   Store
	invoker Invoker
	opts    Options
	log     plan.Log

	clock    *plan.Clock
	fleet    *plan.Fleet
	plan     *plan.Planner
	chores   *chores.Chores
	pool     *pool.Pool[plan.Detail]
	metrics  *metrics
	progress loop.Progress
	gates
	adopts
	outcomes
	signals
}

// gates are what an attempt passes before it begins.
type gates struct {
	slots  *slots
	hosts  *hosts
	begins *runPermits // of at_most_once jobs
	states *stateReads
	inputs *inputReads
	long   *longAttempts
	used   *usedGroups
	// attempts that ended, to be used again: one is some 800 bytes.
	attempts sync.Pool
}

// adopts are the runs that the node has won, and those that it may win.
type adopts struct {
	claims  *plan.Claims
	adopter *chores.Adopter
	idle    *chores.Adoption // of runs that no node works on
	retries *retries
}

// outcomes is what follows an attempt.
type outcomes struct {
	recorder *recorder
	delays   *delays
	gone     goneTargets
	// broadcasts are ended when their last shard is.
	broadcasts *broadcasts
	waiting    *waitingRuns
}

// signals wake the loops.
type signals struct {
	wakePoll      chan struct{} // definitions or the node's share changed: read the window now
	wakeAdopt     chan struct{} // runs may wait to be adopted
	wakeFollow    chan struct{} // runs ended that something follows
	wakeBackfill  chan struct{} // a backfill may go on
	wakeBulk      chan struct{} // there is a bulk action
	wakeHeartbeat chan struct{} // nodes came or went
	changes       *changes
	// broken are triggers whose next fire could not be found when they were to be claimed.
	broken *pile[brokenTrigger]
	apis   []string // of the other nodes, as OnAPIs was told; of the heartbeat's loop
}

// New returns an Engine over store that calls targets through invoker. It starts nothing; call Run.
func New(store Store, invoker Invoker, options Options) *Engine {
	o := options.withDefaults()
	fleet := plan.NewFleet(o.DeadAfter, o.Drain, o.Heartbeat)
	e := &Engine{
		store: store, invoker: invoker, opts: o, log: plan.Log{Logger: o.Logger, Fleet: fleet}, clock: plan.NewClock(store), fleet: fleet,
		gates: gates{
			slots: newSlots(store, o.Batch, o.Logger), hosts: newHosts(o.BreakerFailures, o.HostRate),
			begins: newRunPermits("begin runs", store.Begin, o.Batch, o.Logger), long: &longAttempts{protection: o.Protection},
			used:     &usedGroups{of: map[int64]*usedGroup{}},
			states:   newStateReads(store, o.Batch, o.Logger),
			inputs:   newInputReads(store, min(o.Batch, mostInputs), o.Logger),
			attempts: sync.Pool{New: func() any { return &attempt{} }},
		},
		signals: signals{
			wakePoll: make(chan struct{}, 1), wakeAdopt: make(chan struct{}, 1), wakeFollow: make(chan struct{}, 1),
			wakeBackfill:  make(chan struct{}, 1),
			wakeBulk:      make(chan struct{}, 1),
			wakeHeartbeat: make(chan struct{}, 1), changes: newChanges(), broken: newPile[brokenTrigger](),
		},
	}
	e.pool = pool.New(o.Pool, pool.Work[plan.Detail]{WaitUntilDue: e.waitUntilDue, Attempt: e.attempt, Until: e.clock.Until})
	e.clock.Margin, e.fleet.Margin = o.ClockMargin, o.ClockMargin
	registry := cmp.Or[prometheus.Registerer](o.Metrics, prometheus.NewRegistry())
	of := plan.Node{Log: e.log, Fleet: fleet, Clock: e.clock, Options: plan.Options{
		Apps: o.Apps, Labels: o.Labels, Window: o.Window, Handler: o.Handler, DeadAfter: o.DeadAfter, ClockMargin: o.ClockMargin,
		Lead: o.Lead, Grace: o.Grace, Batch: o.Batch,
	}}
	e.plan = plan.New(store, plan.NewDefinitions(store, of, func(app string) { e.metrics.apps.Of(app) }), e.wakePoll)
	e.claims, e.retries, e.idle = plan.NewClaims(store, of), newRetries(), chores.NewAdoption(dispatcher.AdoptQuery{}, e.wakeAdopt)
	e.adopter = &chores.Adopter{Node: of, Store: store, Plan: e.plan, Claims: e.claims, Pool: e.pool}
	e.chores = chores.New(chores.Parts{
		Store: store, Plan: e.plan, Claims: e.claims, Pool: e.pool, HasSlot: e.slots.has, Registry: registry,
		Wakes: chores.Wakes{Poll: e.wakePoll, Adopt: e.wakeAdopt, Follow: e.wakeFollow, Retry: e.retries.wake},
		Missed: func(app string, decision dispatcher.Decision, fires int) {
			e.metrics.apps.Of(app).missed[decision].Add(float64(fires))
		},
	})
	e.pool.OnFreed(e.hasRoom)
	e.outcomes = outcomes{delays: newDelays(), gone: goneTargets{newPile[dispatcher.Record]()},
		broadcasts: newBroadcasts(), waiting: newWaitingRuns()}
	e.recorder = newRecorder(store, e.recorded, e.pool.Busy, o.Batch, o.Logger)
	e.metrics = newMetrics(e, registry)
	return e
}

// Run dispatches until ctx ends, then drains. It waits while the database is unreachable, at
// start-up and later. It returns no later than Drain and Closing after ctx has ended, also if the database
// does not respond.
func (e *Engine) Run(ctx context.Context) {
	err := loop.Persist(ctx, func() error { return e.start(ctx) }, func(f backoff.Failure) bool {
		if ctx.Err() == nil {
			e.log.Failed(ctx, "start", f.Err)
		}
		return ctx.Err() == nil
	})
	if err != nil {
		return // ctx has ended
	}
	if e.opts.OnStarted != nil {
		e.opts.OnStarted(e.fleet.ID())
	}
	// Heartbeats and records must go on while attempts in flight finish.
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	ctx = loop.WithLife(ctx, life)
	heartbeats, endHeartbeats := context.WithCancel(life)
	defer endHeartbeats()
	var claiming, beating, recording sync.WaitGroup
	for _, loop := range []func(context.Context){
		e.listenLoop, e.changeLoop, e.pollLoop, e.sweepLoop, e.aheadLoop, e.claimLoop, e.unfoldLoop,
		e.handlerLoop, e.adoptLoop, e.retryLoop, e.delayLoop, e.followLoop, e.brokenLoop, e.purgeLoop, e.healthLoop,
		e.waitingLoop,
		e.backfillLoop, e.bulkLoop,
	} {
		claiming.Go(func() { loop(ctx) })
	}
	beating.Go(func() { e.heartbeatLoop(heartbeats) })
	for _, loop := range []func(context.Context){
		e.recorder.run, e.begins.run, e.states.run, e.inputs.run, e.slots.run, e.goneLoop, e.broadcastLoop,
	} {
		recording.Go(func() { loop(life) })
	}
	if e.opts.Metrics != nil { // years of virtual time have many seconds
		recording.Go(func() { e.usageLoop(life) })
	}
	e.pool.Start(life)

	<-ctx.Done()
	begun := time.Now()
	late := time.AfterFunc(e.opts.Drain+e.opts.Closing, func() { end(pool.ErrCutOff) })
	defer late.Stop()
	// First, and without asking the database: its failure may be the reason for the shutdown.
	e.pool.Close()
	claiming.Wait()
	e.drain(life, begun, func() {
		// A heartbeat after the node has left would register it again.
		endHeartbeats()
		beating.Wait()
	})
	end(nil)
	recording.Wait()
}

// start reads which installation this is and what time it is there, and joins the fleet.
func (e *Engine) start(ctx context.Context) error {
	installation, err := e.store.Installation(ctx)
	if err != nil {
		return fmt.Errorf("read installation: %w", err)
	}
	e.plan.Jobs.Installation = installation
	if err := e.clock.Sample(ctx); err != nil {
		return fmt.Errorf("read database clock: %w", err)
	}
	if _, err := e.chores.FollowZones(ctx); err != nil { // before it computes anything
		return err
	}
	if err := e.register(ctx, dispatcher.NodeActive); err != nil {
		return fmt.Errorf("register node: %w", err)
	}
	return nil
}

// Ready returns nil while the node can dispatch, and otherwise the reason why it cannot.
func (e *Engine) Ready() error {
	switch {
	case e.fleet.ID() == 0:
		return errors.New("the node is not registered yet")
	case !e.fleet.Leased():
		return errors.New("the node's lease has run out: its heartbeats do not reach the database")
	case e.clock.Offset().Abs() > mostSkew:
		return fmt.Errorf("the node's clock is %s off the database's; set it right", e.clock.Offset().Round(time.Second))
	}
	return nil
}

// Node returns the node's id, 0 before it is registered.
func (e *Engine) Node() run.NodeID { return e.fleet.ID() }
