package engine

import (
	"context"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/engine/plan"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// waitingRuns keeps the waiting runs of apps within their quotas. A fire that has no waiting place yet gets none while its app
// has as many as it may; a run that waited before keeps its place. It is an estimate: nodes report each handler interval which
// places they have given, and at once when an app may be at its quota, which the database then counts. So an app may be above
// its quota by what nodes give in the time of a report.
type waitingRuns struct {
	mu   sync.Mutex
	apps map[string]*waitingOfApp
	wake chan struct{}
}

// waitingOfApp is what a node knows of an app of which it has given places.
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
	return &waitingRuns{apps: map[string]*waitingOfApp{}, wake: make(chan struct{}, 1)}
}

// take gives a run of an app a waiting place, or returns why it gets none, as a Problem.
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
		loop.Wake(w.wake)
	}
	if over {
		return target.WaitingRunsReached(app, a.counted, most)
	}
	return nil
}

// waitingLoop reports which waiting places the node has given.
func (e *Engine) waitingLoop(ctx context.Context) {
	e.every(ctx, "waiting runs", pace{interval: e.opts.Handler, wake: e.waiting.wake}, e.reportWaiting)
}

// reportWaiting tells the database which waiting places the node has given, and learns how many runs of these apps wait. It
// forgets apps for which no run asked since the last time.
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

// placed returns how an attempt ends and when its run is attempted again, as it may: a fire of an app with too many waiting runs
// ends here. One that was never attempted is skipped, and of one that its target accepted the callback is not waited for.
func (e *Engine) placed(r plan.Held, o run.Outcome, next *dispatcher.NextAttempt) (run.Outcome, *dispatcher.NextAttempt) {
	job := r.Detail.Job
	if next == nil || job == nil || job.Bounds == nil { // without a job, it was adopted, and waited before
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

// Why a run would have needed a waiting place.
const (
	unplacedRetry    = "retry"
	unplacedDeferred = "deferred"
	unplacedCallback = "callback"
)
