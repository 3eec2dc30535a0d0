package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/engine/plan"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// slots are the runs of this node that hold a concurrency slot of their job. A run takes its slot just before it
// begins, and gives it back when it has ended, so that waiting runs are woken. That is only the quick way: the handler
// of another node passes on the slots of a node that died, and slots that were never given back.
type slots struct {
	store    Store
	log      *slog.Logger
	requests *runPermits
	// endpoints asks for the slots of endpoints.
	endpoints *permits[target.EndpointRequest, target.EndpointGrant]

	mu   sync.Mutex
	held map[pool.AttemptKey]run.HeldRun
	over *pile[run.HeldRun] // to be given back
}

func newSlots(store Store, batch int, log *slog.Logger) *slots {
	key := func(asks target.EndpointRequest) pool.AttemptKey { return pool.KeyOf(asks.HeldRun) }
	grant := func(ctx context.Context, asks []target.EndpointRequest) (map[pool.AttemptKey]target.EndpointGrant, error) {
		grants, err := store.AcquireEndpoints(ctx, asks)
		granted := make(map[pool.AttemptKey]target.EndpointGrant, len(grants))
		for _, grant := range grants {
			granted[pool.KeyOf(grant.HeldRun)] = grant
		}
		return granted, err
	}
	return &slots{
		store: store, log: log, requests: newRunPermits("acquire slots", store.Acquire, batch, log),
		endpoints: newPermits("acquire slots of endpoints", key, grant, batch, log),
		held:      map[pool.AttemptKey]run.HeldRun{}, over: newPile[run.HeldRun](),
	}
}

// takeSlot waits for the slot of a run whose job limits its runs. It is a step of an attempt.
func (e *Engine) takeSlot(ctx context.Context, a *attempt) result {
	if a.call.Slots == 0 {
		return proceed
	}
	if a.run.Shard > 0 {
		// Its parent has the slot. But if the parent is cancelled, the slot stays taken until this node gives it back.
		e.slots.took(a.run.HeldRun)
		a.hasSlot = true
		return proceed
	}
	if acquired := e.slots.requests.request(ctx, a.run.HeldRun); !acquired {
		a.hasSlot = ctx.Err() != nil // the run may have got one
		if a.run.Detail.Delayed {
			e.wakeAdopt.Notify() // if the run was skipped, no record schedules the trigger's next fire
		}
		e.metrics.slots.WithLabelValues(claimLost).Inc()
		return refused
	}
	e.metrics.slots.WithLabelValues(claimWon).Inc()
	e.slots.took(a.run.HeldRun)
	a.hasSlot = true
	return allowed(e.holds(a.run))
}

// took notes that an attempt has a slot.
func (s *slots) took(run run.HeldRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[pool.KeyOf(run)] = run
}

// has reports whether an attempt of a run under a token has a slot here.
func (s *slots) has(run run.HeldRun) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.held {
		if key.Of(run.Key, run.Token) {
			return true
		}
	}
	return false
}

// giveBack gives back the slot of a run that has one, or may have got one, without an attempt.
func (s *slots) giveBack(run run.HeldRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, pool.KeyOf(run))
	s.over.add(run)
}

// recorded gives back the slots of attempts whose outcome is stored.
func (s *slots) recorded(records []dispatcher.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.held) == 0 {
		return
	}
	for _, r := range records {
		key := pool.RecordKey(r)
		if run, ok := s.held[key]; ok {
			delete(s.held, key)
			s.over.add(run)
		}
	}
}

// run takes slots and gives them back until ctx ends.
func (s *slots) run(ctx context.Context) {
	var requests sync.WaitGroup
	requests.Go(func() { s.requests.run(ctx) })
	requests.Go(func() { s.endpoints.run(ctx) })
	defer requests.Wait()
	s.over.serve(ctx, func(ctx context.Context) {
		over := s.over.take()
		var undecided *dispatcher.UndecidedError
		released := loop.UntilDone(ctx, s.log, "release slots", len(over), func() error {
			err := s.store.ReleaseSlots(ctx, over)
			if errors.As(err, &undecided) {
				return nil
			}
			return err
		})
		switch {
		case !released:
			s.over.add(over...)
		case undecided != nil:
			// The slots of locked jobs are given back a little later, and no other job waits for them.
			time.AfterFunc(loop.Spread(undecidedPause), func() { s.over.add(undecided.Runs...) })
		}
	})
}

// releaseLast tries once to give back the slots of the latest records.
func (s *slots) releaseLast(ctx context.Context) {
	over := s.over.take()
	if len(over) == 0 {
		return
	}
	if err := s.store.ReleaseSlots(ctx, over); err != nil {
		s.log.ErrorContext(ctx, "step failed", "step", "release slots", "count", len(over), "err", err)
	}
}

// occupies reports whether an attempt needs the slot of its endpoint.
func occupies(a *attempt) bool {
	group := a.call.Target.Group
	return group != nil && group.EndpointConcurrency != "" && group.EndpointConcurrency != run.ConcurrencyAllow
}

// occupy takes the slot of the endpoint that the strategy has chosen, before anything is sent to it. It ends the
// attempt if the run has to wait or was skipped. A run that failed before is not skipped: it takes a free endpoint, and
// if none is free, its attempt fails and is repeated.
func (e *Engine) occupy(ctx context.Context, a *attempt, endpoint string, ifFree bool) target.EndpointGrant {
	ifFree = ifFree || a.run.Attempt > 1 && a.call.Target.Group.EndpointConcurrency == run.ConcurrencyForbid
	grant := e.slots.endpoints.request(ctx, target.EndpointRequest{HeldRun: a.run.HeldRun, Endpoint: endpoint, IfFree: ifFree})
	switch {
	case grant.Busy != "":
		return grant
	case grant.Endpoint == "":
		a.over, a.hasSlot = true, a.hasSlot || ctx.Err() != nil // the run may have got one
		if a.run.Detail.Delayed {
			e.wakeAdopt.Notify() // if the run was skipped, no record schedules the trigger's next fire
		}
		if a.run.Shard > 0 {
			e.broadcasts.done.add(a.run.Parent()) // if it was the last one, no record ends the parent
		}
		e.metrics.slots.WithLabelValues(claimLost).Inc()
		return grant
	}
	e.metrics.slots.WithLabelValues(claimWon).Inc()
	e.slots.took(a.run.HeldRun)
	a.hasSlot = true
	if a.call.Delivery == dispatcher.AtMostOnce && !e.begins.request(ctx, a.run.HeldRun) || !e.mayAct(ctx, a.run) {
		a.over = true
		return target.EndpointGrant{}
	}
	return grant
}

// waitingRuns keeps the waiting runs of apps within their quotas. A fire without a waiting place gets none while its
// app has reached its quota; a run that waited before keeps its place. It is an estimate: nodes report the places that
// they have given each handler interval, and at once when an app may be at its quota; the database then counts. So an
// app may exceed its quota by the places that nodes give between two reports.
type waitingRuns struct {
	mu   sync.Mutex
	apps map[string]*waitingOfApp
	wake loop.Signal
}

// waitingOfApp is the state of an app to which the node has given places.
type waitingOfApp struct {
	most    int
	counted int64     // as of the latest report
	at      time.Time // of that report
	given   int64     // places since
	asked   bool      // for a place, since
}

// recount is the least time between two reports about an app.
const recount = time.Second

func newWaitingRuns() *waitingRuns {
	return &waitingRuns{apps: map[string]*waitingOfApp{}, wake: loop.NewSignal()}
}

// take gives a run of an app a waiting place, or returns a Problem with the reason why it gets none.
func (w *waitingRuns) take(app string, most int, now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.apps[app]
	if a == nil {
		a = &waitingOfApp{}
		w.apps[app] = a
	}
	a.most, a.asked = most, true
	over := a.counted >= int64(most)
	if !over {
		a.given++
	}
	if a.counted+a.given >= int64(most) && plan.Passed(a.at, now, recount) {
		w.wake.Notify()
	}
	if over {
		return target.WaitingRunsReached(app, a.counted, most)
	}
	return nil
}

// reportWaiting reports the waiting places that the node has given, and learns how many runs of these apps wait. It
// drops apps without a request since the last time.
func (e *Engine) reportWaiting(ctx context.Context, now time.Time) error {
	w := e.waiting
	w.mu.Lock()
	given := map[string]dispatcher.GivenPlaces{}
	for app, a := range w.apps {
		if given[app] = (dispatcher.GivenPlaces{Given: a.given, Most: a.most}); !a.asked {
			delete(w.apps, app)
			delete(given, app)
		}
	}
	w.mu.Unlock()
	if len(given) == 0 {
		return nil
	}
	waiting, err := e.store.WaitingRuns(ctx, given, time.Time{})
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for app, of := range given {
		a := w.apps[app]
		a.counted, a.at, a.asked = waiting[app], now, false
		a.given -= of.Given
	}
	return nil
}

// placed returns the outcome and the next attempt of a run as the quota allows them: a fire of an app with too many
// waiting runs ends here. A run that was never attempted is skipped, and a callback is not waited for.
func (e *Engine) placed(r plan.Held, o run.Outcome, next *dispatcher.NextAttempt) (run.Outcome, *dispatcher.NextAttempt) {
	job := r.Detail.Job
	if next == nil || job == nil || job.Bounds == nil { // without a job, the run was adopted, so it waited before
		return o, next
	}
	bounds := job.Bounds
	if latest, cached := e.plan.Jobs.Get(r.JobID, 0); cached && latest.Bounds != nil {
		bounds = latest.Bounds
	}
	full := e.waiting.take(job.App, bounds.Quotas.WaitingRuns, e.clock.Now())
	if full == nil {
		return o, next
	}
	switch {
	case next.Callback != nil:
		o.State, o.Class, o.Error = run.Failed, run.ClassBounds, "the callback is not waited for: "+full.Error()
		o.Callback = nil
		e.metrics.unplaced.WithLabelValues(unplacedCallback).Inc()
	case next.NotAttempted:
		o.State, o.Class, o.Error = run.Skipped, run.ClassBounds, o.Error+"; it may not wait: "+full.Error()
		e.metrics.unplaced.WithLabelValues(unplacedDeferred).Inc()
	default:
		o.Error += "; not attempted again: " + full.Error()
		e.metrics.unplaced.WithLabelValues(unplacedRetry).Inc()
	}
	return o, nil
}

// Reasons for a waiting place.
const (
	unplacedRetry    = "retry"
	unplacedDeferred = "deferred"
	unplacedCallback = "callback"
)
