// Package chores is the periodic work of a node apart from its fires: every 15 s, for the fleet, for apps and for
// itself. New lists the chores as rows: a step, its interval, and the lock that keeps other nodes from it.
//
// The package also adopts runs without a node, for the loops of package engine that look for them.
package chores

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/engine/plan"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// handlerPage is how many triggers or jobs one statement of a step changes.
const handlerPage = 1000

// Chores are the periodic work of a node apart from its fires: every 15 s, for itself and for the fleet.
type Chores struct {
	plan.Node
	Parts
	rows      []chore
	fleetRows []chore // one request takes all of their locks
	metrics   *metrics
	Bytes     *bytesKept
	zones     followedZones
	missing   map[pool.AttemptKey]time.Time // when a run was first missed; see Reclaim
	left      left
	// When this node last looked for runs to reclaim, for other time zone data, and for leaks.
	reclaimAt, zonesAt, mended time.Time
	upcoming                   upcoming
	census                     census
}

// Store is the part of a store that chores use. Package dispatcher documents each method.
type Store interface {
	adoptStore
	dispatcher.Locks
	alert.AlertWatch // conditions that depend on time
	MarkDead(ctx context.Context, id run.NodeID, heartbeat time.Time, after time.Duration, now time.Time) (int, error)
	FailLostRuns(ctx context.Context, now time.Time) (int, error)
	EndBroadcasts(ctx context.Context, parents []run.Key, now time.Time) (int, error)
	GrantWaiting(ctx context.Context) error
	Held(ctx context.Context, node run.NodeID, token run.Token) ([]run.HeldRun, error)
	Begun(ctx context.Context, node run.NodeID) ([]run.HeldRun, error)
	LeftSlots(ctx context.Context, node run.NodeID, after dispatcher.SlotKey, limit int) (dispatcher.LeftSlots, error)
	LoseRuns(ctx context.Context, runs []run.HeldRun, now time.Time) (int, error)
	ReleaseSlots(ctx context.Context, runs []run.HeldRun) error
	OverdueApps(ctx context.Context, apps []string, labels input.Labels, from, now time.Time) ([]string, error)
	Due(ctx context.Context, query dispatcher.DueQuery) ([]dispatcher.DueTrigger, error)
	Settle(ctx context.Context, batch dispatcher.SettleBatch) ([]run.HeldRun, error)
	Rollback(ctx context.Context) (*dispatcher.Rollback, error)
	SkipRolledBack(ctx context.Context, after int64, limit int, now time.Time) (dispatcher.RollbackSkipped, error)
	ZoneSetting(ctx context.Context) (dispatcher.ZoneSetting, error)
	ZoneArchive(ctx context.Context, sum string) ([]byte, error)
	NoteZones(ctx context.Context, id run.NodeID, release string) error
	ZonesChanged(ctx context.Context) (bool, error)
	RescheduleForZones(ctx context.Context, after int64, limit int, now time.Time) (dispatcher.Rescheduled, error)
	ExpirePauses(ctx context.Context, limit int, now time.Time) (int, error)
	RemoveCutOffImports(ctx context.Context, now time.Time) (int, error)
	FollowSwitches(ctx context.Context, limit int) (followed int, more bool, err error)
	ExpireEndpoints(ctx context.Context, limit int, now time.Time) (int, error)
	MendLeaks(ctx context.Context, limit int, now time.Time) ([]dispatcher.Leak, error)
	dispatcher.Asides
	RollUp(ctx context.Context, limit int) (dispatcher.RolledUp, error)
	RollUpObjectives(ctx context.Context, limit int, now time.Time) (dispatcher.ObjectivesRolled, error)
	RollUpStatistics(ctx context.Context, now time.Time) (view.StatisticsRolled, error)
	Upcoming(ctx context.Context, apps []string, until time.Time, limit int) (int, error)
	AwaitedCallbacks(ctx context.Context, apps []string, limit int) (int, error)
	Census(ctx context.Context, overdue time.Time, limit int) (dispatcher.Census, error)
	KeepBytes(ctx context.Context, added map[string]int64, now time.Time) (kept map[string]int64, err error)
}

// Parts are the dependencies of chores.
type Parts struct {
	Store  Store
	Plan   *plan.Planner
	Claims *plan.Claims
	Pool   *pool.Pool[plan.Detail]
	Wakes  Wakes
	// HasSlot reports whether an attempt of a run under a token has a slot here.
	HasSlot func(run.HeldRun) bool
	// Missed counts missed fires by the decision about them.
	Missed func(app string, decision dispatcher.Decision, fires int)
	// Registry is where they register their metrics.
	Registry prometheus.Registerer
}

// Wakes wake the loops that continue the work of a chore.
type Wakes struct{ Poll, Adopt, Follow, Retry loop.Signal }

// New returns the chores of a node that follows no time zone data yet.
func New(parts Parts) *Chores {
	c := &Chores{Node: parts.Plan.Node, Parts: parts}
	c.Bytes = &bytesKept{stored: map[string]int64{}, kept: map[string]int64{}, over: map[string]bool{}}
	c.metrics = newMetrics(c, parts.Registry)
	awaited := func() bool { return !c.Fleet.AwaitsRollbackChoice() }
	joined := func() bool { return c.Fleet.ID() != 0 }
	// Nodes that serve other apps count for themselves.
	upcoming := strings.Join(append([]string{dispatcher.LockUpcoming}, c.Options.Apps...), "/")
	c.rows = []chore{
		{name: "skip after a rollback", step: c.handleRollback},
		{name: "follow the installation's time zones", step: c.switchZones},
		{name: "reschedule for time zones", every: zonesInterval, last: &c.zonesAt, step: c.rescheduleForZones},
		{name: "settle misfires", may: c.Fleet.Active, step: c.SettleMisfires},
		// After it, so that alerts tell of missed fires and not of late ones before.
		{name: "work for the fleet", step: c.workForFleet},
		{name: "reclaim runs", every: reclaimInterval, last: &c.reclaimAt, early: c.missesRuns, step: c.Reclaim},
		{name: "try again what is set aside", step: c.retrySetAside},
		{name: "settle attempts that are not here", every: reclaimInterval, last: &c.left.at, early: c.missesAttempts, step: c.settleLeft},
		{name: "mend leaks", every: reclaimInterval, last: &c.mended, may: awaited, step: c.mendLeaks},
		{name: "count upcoming fires", lock: upcoming, every: countInterval, last: &c.upcoming.tried, may: c.Fleet.Active,
			step: c.countUpcoming},
		{name: "count what there is", lock: dispatcher.LockCensus, every: countInterval, last: &c.census.tried, may: joined, step: c.takeCensus},
		{name: "report bytes of responses", step: c.reportBytes},
	}
	c.fleetRows = []chore{
		{lock: dispatcher.LockStates, step: c.rollUpStates},
		{lock: dispatcher.LockSwitches, step: c.expirePauses},
		{lock: dispatcher.LockSwitches, step: c.removeCutOffImports},
		{lock: dispatcher.LockSwitches, step: c.followSwitches},
		{lock: dispatcher.LockEndpoints, step: c.expireEndpoints},
		{lock: dispatcher.LockAlerts, step: c.watchAlerts},
		{lock: dispatcher.LockObjectives, step: c.rollUpObjectives},
		{lock: dispatcher.LockStatistics, step: c.rollUpStatistics},
	}
	return c
}

// chore is one row of the handler's work.
type chore struct {
	name string
	// lock keeps other nodes from the chore in the interval; empty: each node does it, or its step takes a lock once it
	// knows that there is work.
	lock string
	// every is the interval; 0: the chore is part of each round. last is when an interval began; without a lock the
	// step notes it.
	every time.Duration
	last  *time.Time
	early func(now time.Time) bool // allows the step before the interval is over; nil: never
	may   func() bool              // allows the step now; nil: always
	step  func(ctx context.Context, now time.Time) error
}

// Round makes one round. Steps for the fleet or for an app take a lock, so that one node does them in an interval; one
// statement tells the others that they have nothing to do. Every write is a compare-and-swap, so a node that froze
// under a lock and wakes when another node has it does no harm.
func (c *Chores) Round(ctx context.Context, now time.Time) error {
	var errs []error
	for _, one := range c.rows {
		loop.Turned(ctx)
		if err := c.do(ctx, one, now); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", one.name, err))
		}
	}
	return errors.Join(errs...)
}

// do makes the step of a row if it is due and this node has its lock.
func (c *Chores) do(ctx context.Context, one chore, now time.Time) error {
	rests := one.every > 0 && !plan.Passed(*one.last, now, one.every) && (one.early == nil || !one.early(now))
	if rests || one.may != nil && !one.may() {
		return nil
	}
	if one.lock != "" {
		// A node tries once in an interval, so if the node with the lock dies, the step rests for that long. The lock
		// is shorter than the interval: it is taken a little after the round began, and would otherwise still be held
		// in the node's round one interval later.
		*one.last = now
		held := one.every * 8 / 10
		locks, err := c.Store.Lock(ctx, dispatcher.LockRequest{Node: c.Fleet.ID(), Names: []string{one.lock}, AtMost: held, AtLeast: held})
		if err != nil || len(locks) == 0 {
			return err
		}
	}
	return one.step(ctx, now)
}

// errLockExpired is the cause of a step's end when the time of its lock has passed.
var errLockExpired = errors.New("the time of the lock has passed")

// withLocks takes those of the named locks that are free, and calls do with their names. When the locks expire, as
// after a freeze, it stops do before its next statement, and the next round does the rest.
func (c *Chores) withLocks(ctx context.Context, names []string, do func(ctx context.Context, won []string) error) error {
	sent := time.Now()
	locks, err := c.Store.Lock(ctx, dispatcher.LockRequest{
		Node: c.Fleet.ID(), Names: names, AtMost: c.Options.DeadAfter, AtLeast: c.Options.Handler * 8 / 10,
	})
	if err != nil || len(locks) == 0 {
		return err
	}
	loop.Turned(ctx)
	failpoint.Hit(failpoint.LockTaken)
	won := make([]string, len(locks))
	for i, lock := range locks {
		won[i] = lock.Name
	}
	within, end := context.WithCancelCause(ctx)
	defer end(nil)
	stop := c.Fleet.WhenLeaseEnds(sent, func() { end(errLockExpired) })
	defer stop()
	err = do(within, won)
	loop.Turned(ctx)
	failpoint.Hit(failpoint.BeforeUnlock)
	if errors.Is(context.Cause(within), errLockExpired) {
		c.Log.InfoContext(ctx, "lock expired; the next round goes on", "node", c.Fleet.ID().String(), "locks", len(locks))
		return nil // another node may have them by now
	}
	return errors.Join(err, c.Store.Unlock(loop.WithoutCancel(ctx), locks))
}

// withLock is withLocks for one lock.
func (c *Chores) withLock(ctx context.Context, name string, do func(context.Context) error) error {
	return c.withLocks(ctx, []string{name}, func(ctx context.Context, _ []string) error { return do(ctx) })
}
