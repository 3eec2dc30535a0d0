package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/backoff"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// Engine is one dispatcher node.
type Engine struct {
	store   Store
	invoker Invoker
	opts    Options
	log     *slog.Logger

	clock    *clock
	fleet    *fleet
	timeline *timeline
	pool     *pool.Pool[runDetail]
	tokens   *tokens
	metrics  *metrics
	progress progress
	overdue  overdue
	upcoming upcoming
	census   census
	planning
	definitions
	gates
	outcomes
	signals
	rounds
}

// planning is what polls and sweeps remember from one to the next, and what notifications have told.
type planning struct {
	floors    floors
	labelSets labelSets
	changes   *changes
	ahead     *ahead
}

// definitions are caches of what is due: jobs, their triggers, the calendars of their apps, and the
// expressions that the schedules of triggers share.
type definitions struct {
	// broken are triggers whose next fire could not be found when they were to be claimed.
	broken    *pile[brokenTrigger]
	jobs      *jobCache
	groups    *groupCache
	used      *usedGroups
	triggers  *triggerCache
	calendars *calendarCache
	schedules *schedule.Cache
}

// gates are what an attempt passes before it begins.
type gates struct {
	slots  *slots
	hosts  *hosts
	begins *runPermits // of at_most_once jobs
	states *stateReads
	inputs *inputReads
	long   *longAttempts
	// attempts that ended, to be used again: one is some 800 bytes.
	attempts sync.Pool
}

// outcomes is what follows an attempt.
type outcomes struct {
	recorder *recorder
	delays   *delays
	retries  *retries
	gone     goneTargets
	// broadcasts are ended when their last shard is.
	broadcasts *broadcasts
	bytes      *bytesKept
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
	lostFires     atomic.Bool   // own fires were lost since the last sweep
	apis          []string      // of the other nodes, as OnAPIs was told; of the heartbeat's loop
}

// rounds is what the handler remembers from one round to the next.
type rounds struct {
	idle    *adoption                     // of runs that no node works on
	missing map[pool.AttemptKey]time.Time // when a run was first missed; see reclaim
	doubt   atomic.Int64                  // when a claim last had no response, or a rollback came or went, in Unix milliseconds; see inDoubt
	left    left
	mended  time.Time // when the node last looked for leaks
	// When this node last looked for runs to reclaim, and for other time zone data.
	reclaimAt, zonesAt time.Time
	zones              followedZones
}

// New returns an Engine over store that calls targets through invoker. It starts nothing; call Run.
func New(store Store, invoker Invoker, options Options) *Engine {
	o := options.withDefaults()
	e := &Engine{
		store: store, invoker: invoker, opts: o, log: o.Logger,
		clock: newClock(store), fleet: newFleet(o.DeadAfter, o.Drain, o.Heartbeat), tokens: newTokens(),
		progress: progress{loops: map[string]loopProgress{}},
		planning: planning{changes: newChanges(), floors: newFloors(o)},
		definitions: definitions{
			jobs: newJobCache(store), groups: newGroupCache(store), used: &usedGroups{of: map[int64]*usedGroup{}},
			triggers:  newTriggerCache(mostKnownTriggers),
			calendars: newCalendarCache(store), schedules: schedule.NewCache(10_000),
		},
		gates: gates{
			slots: newSlots(store, o.Batch, o.Logger), hosts: newHosts(o.BreakerFailures, o.HostRate),
			begins: newRunPermits("begin runs", store.Begin, o.Batch, o.Logger), long: &longAttempts{protection: o.Protection},
			states:   newStateReads(store, o.Batch, o.Logger),
			inputs:   newInputReads(store, min(o.Batch, mostInputs), o.Logger),
			attempts: sync.Pool{New: func() any { return &attempt{} }},
		},
		signals: signals{
			wakePoll: make(chan struct{}, 1), wakeAdopt: make(chan struct{}, 1), wakeFollow: make(chan struct{}, 1),
			wakeBackfill:  make(chan struct{}, 1),
			wakeBulk:      make(chan struct{}, 1),
			wakeHeartbeat: make(chan struct{}, 1),
		},
	}
	e.pool = pool.New(o.Pool, pool.Work[runDetail]{WaitUntilDue: e.waitUntilDue, Attempt: e.attempt, Until: e.clock.until})
	e.clock.margin, e.fleet.margin = o.ClockMargin, o.ClockMargin
	e.timeline = newTimeline()
	e.ahead = newAhead(e.wakePoll)
	e.timeline.refill = e.ahead.wake
	e.pool.OnFreed(e.hasRoom)
	e.broken = newPile[brokenTrigger]()
	e.idle = newAdoption(dispatcher.AdoptQuery{}, e.wakeAdopt)
	e.outcomes = outcomes{delays: newDelays(), retries: newRetries(), gone: goneTargets{newPile[dispatcher.Record]()},
		broadcasts: newBroadcasts(), bytes: newBytesKept(), waiting: newWaitingRuns()}
	e.recorder = newRecorder(store, e.recorded, e.pool.Busy, o.Batch, o.Logger)
	e.metrics = newMetrics(e, cmp.Or[prometheus.Registerer](o.Metrics, prometheus.NewRegistry()))
	return e
}

// Run dispatches until ctx ends, then drains. It waits while the database is unreachable, at
// start-up and later. It returns no later than Drain and Closing after ctx has ended, also if the database
// does not respond.
func (e *Engine) Run(ctx context.Context) {
	err := persist(ctx, func() error { return e.start(ctx) }, func(f backoff.Failure) bool {
		if ctx.Err() == nil {
			e.logIf(ctx, "start", f.Err)
		}
		return ctx.Err() == nil
	})
	if err != nil {
		return // ctx has ended
	}
	if e.opts.OnStarted != nil {
		e.opts.OnStarted(e.fleet.id())
	}
	// Heartbeats and records must go on while attempts in flight finish.
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	ctx = withLife(ctx, life)
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
	e.jobs.installation = installation
	if err := e.clock.sample(ctx); err != nil {
		return fmt.Errorf("read database clock: %w", err)
	}
	if _, err := e.followZones(ctx); err != nil { // before it computes anything
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
func (e *Engine) Node() run.NodeID { return e.fleet.id() }

// logIf logs the error of a step. A step that a shutdown cut off has not failed.
func (e *Engine) logIf(ctx context.Context, step string, err error) {
	cutOff := ctx.Err() != nil && errors.Is(err, context.Canceled)
	if err != nil && !cutOff {
		e.log.ErrorContext(ctx, "step failed", "step", step, "node", e.fleet.id().String(), "err", err)
	}
}
