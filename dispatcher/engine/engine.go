package engine

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/backoff"
	"github.com/carillon-dev/carillon/dispatcher/cache"
	"github.com/carillon-dev/carillon/dispatcher/engine/chores"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/engine/plan"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
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

// gates are the checks that an attempt passes before it begins.
type gates struct {
	slots  *slots
	hosts  *hosts
	begins *runPermits // of at_most_once jobs
	states *stateReads
	inputs *inputReads
	long   *longAttempts
	used   *usedGroups
	// attempts that ended, for reuse: one is some 800 bytes.
	attempts sync.Pool
}

// adopts are the runs that the node has won, and the progress of its looks for more.
type adopts struct {
	claims  *plan.Claims
	adopter *chores.Adopter
	idle    *chores.Adoption // of runs without a node
	retries *retries
}

// outcomes is the work that follows an attempt.
type outcomes struct {
	recorder *recorder
	delays   *delays
	gone     goneTargets
	// broadcasts are ended with their last shard.
	broadcasts *broadcasts
	waiting    *waitingRuns
}

// signals wake the loops.
type signals struct {
	wakePoll      loop.Signal // definitions or the node's share changed: read the window now
	wakeAdopt     loop.Signal // runs may wait to be adopted
	wakeFollow    loop.Signal // runs ended that others may follow
	wakeBackfill  loop.Signal // a backfill may go on
	wakeBulk      loop.Signal // there is a bulk action
	wakeHeartbeat loop.Signal // nodes came or went
	changes       *changes
	// broken are triggers with no next fire found when they were to be claimed.
	broken *pile[brokenTrigger]
	apis   []string // of the other nodes, as passed to OnAPIs; used by the heartbeat's loop
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
			wakePoll: loop.NewSignal(), wakeAdopt: loop.NewSignal(), wakeFollow: loop.NewSignal(), wakeBackfill: loop.NewSignal(),
			wakeBulk: loop.NewSignal(), wakeHeartbeat: loop.NewSignal(),
			changes: &changes{jobs: map[int64]bool{}, wake: loop.NewSignal()}, broken: newPile[brokenTrigger](),
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
	e.claims, e.retries = plan.NewClaims(store, of, e.pool.Cancel), newRetries()
	e.idle = chores.NewAdoption(dispatcher.AdoptQuery{}, e.wakeAdopt)
	e.adopter = &chores.Adopter{Node: of, Store: store, Plan: e.plan, Claims: e.claims, Pool: e.pool}
	e.chores = chores.New(chores.Parts{
		Store: store, Plan: e.plan, Claims: e.claims, Pool: e.pool, HasSlot: e.slots.has, Registry: registry,
		Wakes: chores.Wakes{Poll: e.wakePoll, Adopt: e.wakeAdopt, Follow: e.wakeFollow, Retry: e.retries.wake},
		Missed: func(app string, decision dispatcher.Decision, fires int) {
			e.metrics.apps.Of(app).missed[decision].Add(float64(fires))
		},
	})
	e.pool.OnFreed(e.hasRoom)
	e.outcomes = outcomes{
		delays: &delays{expected: map[int64]bool{}, ended: newPile[int64]()}, gone: goneTargets{newPile[dispatcher.Record]()},
		broadcasts: &broadcasts{cache.Sized[int64](mostBroadcastBytes, (*knownBroadcast).size), newPile[run.Key]()},
		waiting:    newWaitingRuns(),
	}
	e.recorder = newRecorder(store, e.recorded, e.pool.Busy, o.Batch, o.Logger)
	e.metrics = newMetrics(e, registry)
	return e
}

// Run dispatches until ctx ends, then drains. It waits while the database is unreachable, at start-up and later. It
// returns at the latest when Drain and Closing have passed after the end of ctx, even if the database does not respond.
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
		e.handlerLoop, e.adoptLoop, e.retryLoop, e.delayLoop, e.brokenLoop, e.purgeLoop, e.healthLoop,
	} {
		claiming.Go(func() { loop(ctx) })
	}
	often := func(wake loop.Signal) pace { return pace{interval: e.opts.Handler, wake: wake} }
	claiming.Go(func() { e.every(ctx, "follow", often(e.wakeFollow), e.followOnce) })
	claiming.Go(func() { e.every(ctx, "waiting runs", often(e.waiting.wake), e.reportWaiting) })
	claiming.Go(func() { e.stepLoop(ctx, "backfill", e.wakeBackfill, e.store.OpenBackfills, e.feedBackfill) })
	claiming.Go(func() { e.stepLoop(ctx, "bulk", e.wakeBulk, e.store.OpenBulkActions, e.moveBulkAction) })
	beating.Go(func() { e.heartbeatLoop(heartbeats) })
	for _, loop := range []func(context.Context){e.recorder.run, e.begins.run, e.states.run, e.inputs.run, e.slots.run} {
		recording.Go(func() { loop(life) })
	}
	recording.Go(func() { e.gone.attempts.serve(life, e.disableGone) })
	recording.Go(func() { e.broadcasts.done.serve(life, e.endBroadcasts) })
	if e.opts.Metrics != nil { // years of virtual time have many seconds
		recording.Go(func() { e.usageLoop(life) })
	}
	e.pool.Start(life)

	<-ctx.Done()
	begun := time.Now()
	late := time.AfterFunc(e.opts.Drain+e.opts.Closing, func() { end(pool.ErrCutOff) })
	defer late.Stop()
	// First, and without the database: its failure may be the reason for the shutdown.
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

// start reads the id of the installation and the database's time, and joins the fleet.
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

// Ready returns nil while the node can dispatch, and otherwise the reason.
func (e *Engine) Ready() error {
	switch {
	case e.fleet.ID() == 0:
		return input.Refuse(input.CodeUnavailable, "the node is not registered yet")
	case !e.fleet.Leased():
		return input.Refuse(input.CodeUnavailable, "the node's lease has run out: its heartbeats do not reach the database")
	case e.clock.Offset().Abs() > mostSkew:
		return input.Refuse(input.CodeUnavailable, "the node's clock is %s off the database's; synchronise the clocks with NTP",
			e.clock.Offset().Round(time.Second))
	}
	return nil
}

// StoreFailure returns why the latest heartbeat or claim failed; nil if both succeeded.
func (e *Engine) StoreFailure() error { return cmp.Or(e.fleet.Failure(), e.claims.Refused()) }

// Node returns the node's id, 0 before it is registered.
func (e *Engine) Node() run.NodeID { return e.fleet.ID() }

// Invoker makes one attempt: at most one request on the wire.
type Invoker interface {
	Invoke(ctx context.Context, call target.Call) run.Outcome
}

// Tracer records attempts as spans.
type Tracer interface {
	// Begin begins the span of an attempt at now, by the database's clock. It returns the sampling of the run's trace,
	// and a function that ends the span; nil: no span. Neither may wait for anything.
	Begin(ctx context.Context, call target.Call, now time.Time) (run.Sampling, func(run.Outcome))
}

// Protector keeps the machine of a node running during attempts that a drain could cut off.
type Protector interface {
	// Hold asks for protection until release is called. It must not wait for anything.
	Hold() (release func())
}

// Options tunes an Engine. The zero value works.
type Options struct {
	// Name is the node's label and Version the program's. They are for display only.
	Name, Version string
	// Apps are the apps that the node serves; empty: all.
	Apps []string
	// Labels are the labels that the node offers to jobs that require some.
	Labels input.Labels
	// APIAddresses are the addresses, HOST:PORT, on which the node serves its API. Other nodes learn them.
	APIAddresses []string
	// Reach is what the node can call and read besides public addresses. Nodes and plans learn it.
	Reach target.Reach
	// OnAPIs is called with the addresses of the other nodes' APIs, at each heartbeat that finds a change; nil:
	// nothing.
	OnAPIs func(addresses []string)
	// Window is the interval of the poll and how far it looks ahead; default 5s.
	Window time.Duration
	// Handler is the interval of the cluster and misfire handler; default 15s.
	Handler time.Duration
	// Heartbeat is the interval of the node's heartbeat; default 5s.
	Heartbeat time.Duration
	// DeadAfter is the time without a heartbeat until a node counts as dead; default 60s.
	DeadAfter time.Duration
	// ClockMargin is how far the clocks of the database's servers differ at most; 0: it has one clock. Fires are
	// that much later, leases end that much earlier, and nodes count as dead that much later.
	ClockMargin time.Duration
	// Lead is how far ahead of its due time a fire is claimed; default 50ms.
	Lead time.Duration
	// Grace is how long a fire is left to the node that is preferred for it; default 1s.
	Grace time.Duration
	// PurgeInterval is the interval of the purge of history, give or take a tenth; default 10m.
	PurgeInterval time.Duration
	// Drain is how long a shutdown waits for attempts in flight; default 25s, less than 0: not at all.
	Drain time.Duration
	// Closing is how long a shutdown then takes at most to store outcomes and to leave the fleet; default 4s.
	Closing time.Duration
	// Pool is how many runs the node executes and holds.
	Pool pool.Options
	// BreakerFailures is the number of failures in a row that open a host's circuit, so that the
	// node leaves the host alone for a while; default 20, less than 0: never.
	BreakerFailures int
	// HostRate is how many requests per second the node makes to one host; 0: no limit.
	HostRate int
	// Batch is how many fires one statement claims or records at most; default 500.
	Batch int
	// Protection is held during attempts with a timeout longer than Drain; nil: they are not protected.
	Protection Protector
	// Tracer records the attempts; nil: no traces.
	Tracer Tracer
	// Logger defaults to slog.Default().
	Logger *slog.Logger
	// Metrics is where the engine registers its metrics; nil: nowhere.
	Metrics prometheus.Registerer
	// OnStarted is called once, when the node has registered and begins to dispatch; nil: nothing.
	OnStarted func(run.NodeID)
	// CertificateEnd returns when the first certificate of the API's chain ends; zero, or without the function: it
	// serves no TLS.
	CertificateEnd func() time.Time
	// Members resolves the DNS names in a group to endpoints: those that an app with these bounds may call, and those
	// that are refused. It may wait for name servers. If it is nil, names have no endpoints.
	Members func(ctx context.Context, group target.EndpointGroup, egress target.EgressBounds) (members, refused []target.Endpoint)
	// OnOutcome is called at the end of every attempt, from the attempt's goroutine; nil: nothing.
	OnOutcome func(target.Call, run.Outcome)
}

func (o Options) withDefaults() Options {
	o.Window = cmp.Or(o.Window, 5*time.Second)
	o.Handler = cmp.Or(o.Handler, 15*time.Second)
	o.Heartbeat = cmp.Or(o.Heartbeat, 5*time.Second)
	o.DeadAfter = cmp.Or(o.DeadAfter, 60*time.Second)
	o.Lead = cmp.Or(o.Lead, 50*time.Millisecond)
	o.Grace = cmp.Or(o.Grace, time.Second)
	o.PurgeInterval = cmp.Or(o.PurgeInterval, 10*time.Minute)
	o.Drain = cmp.Or(o.Drain, 25*time.Second)
	o.Closing = cmp.Or(o.Closing, 4*time.Second)
	o.BreakerFailures = cmp.Or(o.BreakerFailures, 20)
	o.Batch = cmp.Or(o.Batch, 500)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return o
}

// Store is the part of a store that the engine uses. Package dispatcher documents each method.
type Store interface {
	dispatcher.Dispatch   // due triggers, claims, attempts
	dispatcher.Retries    // runs that are attempted again
	dispatcher.Broadcasts // runs that are spread over the endpoints of a group
	dispatcher.Revisions  // for the fires before and after one, in templates
	dispatcher.Follows    // followers of ended runs
	repeat.BackfillFeed
	repeat.BulkFeed
	plan.GroupReader // for jobs whose target is a group
	// CarriedStatesByID returns the states that jobs carry.
	CarriedStatesByID(ctx context.Context, jobs []int64) (map[int64]run.CarriedState, error)
	// Run returns one run, for the range of fires that a catch-up run stands for.
	Run(ctx context.Context, id string) (run.Run, error)

	membership
	chores.Store
	WaitingRuns(ctx context.Context, given map[string]dispatcher.GivenPlaces, now time.Time) (waiting map[string]int64, err error)
	Purge(ctx context.Context, node run.NodeID, now time.Time) (dispatcher.Purged, error)
}

// membership is how a node joins the fleet, shows that it is alive, and leaves.
type membership interface {
	Installation(ctx context.Context) (string, error)
	Clock(ctx context.Context) (time.Time, error)
	Register(ctx context.Context, node dispatcher.Node, now time.Time) error
	Heartbeat(ctx context.Context, id run.NodeID, report dispatcher.NodeReport, now time.Time) (dispatcher.HeartbeatReply, error)
	SetNodeState(ctx context.Context, id run.NodeID, state dispatcher.NodeState, change input.Change) (dispatcher.Node, error)
	Deregister(ctx context.Context, id run.NodeID) error
	RecordOutage(ctx context.Context, outage dispatcher.Outage) error
}
