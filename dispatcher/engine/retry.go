package engine

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/chores"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/engine/plan"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// retries wake the node when runs are to be attempted again. It is only an alarm clock: the runs are rows without a
// node, and belong to the first node that adopts them. The alarm goes off to the millisecond for runs that this node
// recorded and for probes of hosts after its own, and a grace later for those of other nodes, which may be gone.
type retries struct {
	mu    sync.Mutex
	own   []reminder // earliest first
	alarm *time.Timer
	wake  loop.Signal
	// The waits for hosts with a probe due by this node, and when it last looked for those of others.
	probes   []int64
	probedAt time.Time
	// Only retryOnce uses the fields below: its progress, when it last looked and when it looks next for the retries of
	// others, and when it last looked for runs to give up.
	adoption           *chores.Adoption
	due                bool // this node is reminded of a retry
	lookedAt, othersAt time.Time
	gaveUpAt           time.Time
	none               bool // the latest look found no retry and no run that waits for a host
}

// reminder is a time at which this node is the first to look for retries, or for a run that waits for a host.
type reminder struct {
	at   time.Time
	wait int64 // id of the HostWait to look at; 0: look for retries
}

func (r reminder) compare(other reminder) int {
	return cmp.Or(r.at.Compare(other.at), cmp.Compare(r.wait, other.wait))
}

// mostReminders bounds them. The look of each window finds the others.
const mostReminders = 10_000

func newRetries() *retries {
	r := &retries{wake: loop.NewSignal()}
	r.adoption = chores.NewAdoption(dispatcher.AdoptQuery{Retries: true}, r.wake)
	r.alarm = time.AfterFunc(time.Hour, func() { r.wake.Notify() })
	r.alarm.Stop()
	return r
}

// recorded notes the records of runs that are attempted again. until is the clock's.
func (r *retries) recorded(records []dispatcher.Record, until func(time.Time) time.Duration) {
	for _, record := range records {
		if record.Next == nil {
			continue
		}
		if wait := record.Next.Wait; wait != nil {
			r.remind(reminder{wait.ProbeAt, wait.ID}, until)
		} else {
			r.remind(reminder{at: record.Next.At}, until)
		}
	}
}

// remind remembers a time at which this node looks first.
func (r *retries) remind(next reminder, until func(time.Time) time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, known := slices.BinarySearchFunc(r.own, next, reminder.compare)
	if !known && len(r.own) < mostReminders {
		r.own = slices.Insert(r.own, at, next)
	}
	if at == 0 {
		r.alarm.Reset(until(next.at))
	}
}

// pass moves the reminders that are due by now to the next look.
func (r *retries) pass(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.own) > 0 && !r.own[0].at.After(now) {
		if wait := r.own[0].wait; wait != 0 {
			r.probes = append(r.probes, wait)
		} else {
			r.due = true
		}
		r.own = r.own[1:]
	}
}

// setAlarm sets the alarm to the next look, for this node's retries or for those of others.
func (r *retries) setAlarm(until func(time.Time) time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := r.othersAt
	if len(r.own) > 0 {
		next = plan.Earlier(r.own[0].at, next)
	}
	if !next.IsZero() {
		r.alarm.Reset(until(next))
	}
}

// wanted reports whether to look for retries now. It is false when the node was only woken to probe a host.
func (r *retries) wanted(now time.Time, window time.Duration) bool {
	a := r.adoption
	return r.due || !r.othersAt.IsZero() && !now.Before(r.othersAt) || plan.Passed(r.lookedAt, now, mostOf(window)) ||
		a.Backlog || len(a.After) > 0 || a.Clogged.Load()
}

// mostOf returns the least pause between two runs of a task with an interval, because ticks are not exact.
func mostOf(interval time.Duration) time.Duration { return interval * 3 / 4 }

// retryLoop adopts runs that are to be attempted again, when they are due. Once a window, it also looks for the runs of
// nodes that are gone, in turns with the other nodes.
func (e *Engine) retryLoop(ctx context.Context) {
	defer e.retries.alarm.Stop()
	e.every(ctx, "retry", pace{e.opts.Window, e.retries.wake, e.turnToAdopt(e.opts.Window)}, e.retryOnce)
}

// retryOnce adopts the runs that are to be attempted again by now, and lets runs go that wait for hosts.
func (e *Engine) retryOnce(ctx context.Context, now time.Time) error {
	e.letNewerAdopt(ctx, 2) // others look a grace after the time
	e.retries.pass(now)
	defer e.retries.setAlarm(e.clock.Until)
	if e.retries.wanted(now, e.opts.Window) {
		e.retries.othersAt = time.Time{}
		if err := e.adoptRetries(ctx, now); err != nil {
			return err
		}
		e.retries.due, e.retries.lookedAt = false, now
	}
	return e.probeHosts(ctx, now)
}

// adoptRetries adopts the runs that are to be attempted again by now, ends those that are past their time, and plans the
// next look.
func (e *Engine) adoptRetries(ctx context.Context, now time.Time) error {
	if none, err := e.noRetries(ctx, now); none || err != nil {
		return err
	}
	if now.Sub(e.retries.gaveUpAt) >= e.opts.Window {
		count, err := e.store.GiveUp(ctx, time.Time{})
		if err != nil {
			return err
		}
		if count > 0 {
			e.log.InfoContext(ctx, "runs given up", "reason", "retry_max_age", "count", count)
		}
		e.retries.gaveUpAt = now
	}
	look := e.plan.Floors.Retries.Begin(now, 0, time.Time{})
	if err := e.adopter.Due(ctx, e.retries.adoption, look.From, now); err != nil {
		return err
	}
	next, err := e.store.NextRetry(ctx, look.From, now)
	if err != nil {
		return err
	}
	e.plan.Floors.Retries.End(look, next.Least, now.Add(-plan.RetriesMargin))
	e.retries.none = next.Least.IsZero() && !next.Waits
	if e.retries.othersAt = next.Next; !next.Next.IsZero() && !e.fleet.Alone() {
		e.retries.othersAt = next.Next.Add(e.opts.Grace)
	}
	return nil
}

// giveUpInterval is how often a node looks for runs to give up even if it knows of no retry.
const giveUpInterval = time.Minute

// noRetries reports whether no run at all is to be attempted again. It asks only if the last time found none, as is
// usual if targets work, and then saves the other queries.
func (e *Engine) noRetries(ctx context.Context, now time.Time) (bool, error) {
	if !e.retries.none || now.Sub(e.retries.gaveUpAt) >= giveUpInterval {
		return false, nil
	}
	look := e.plan.Floors.Retries.Begin(now, 0, time.Time{})
	next, err := e.store.NextRetry(ctx, look.From, now)
	e.retries.none = err == nil && next.Least.IsZero() && !next.Waits
	if e.retries.none {
		e.plan.Floors.Retries.End(look, next.Least, now.Add(-plan.RetriesMargin))
	}
	return e.retries.none, err
}

// retryFailed is the reason of retries that count as a failure; the others have their class as reason.
const retryFailed = "failed"

// planRetry reports the outcome of an attempt to the circuit breaker, and returns when the run is attempted again; nil:
// never.
func (e *Engine) planRetry(ctx context.Context, r plan.Held, call target.Call, o run.Outcome) *dispatcher.NextAttempt {
	if e.hosts.report(hostOf(r), r.JobID, o, time.Now()) {
		// Let the runs of the job that wait for its host go. If this fails, the next probe does it.
		id := dispatcher.HostWaitID(r.JobID, r.Queue.Host)
		e.log.Failed(ctx, "let runs go that wait for a host", e.store.HostResponded(ctx, id, time.Time{}))
		e.retries.remind(reminder{e.clock.Now().Add(flowPause), id}, e.clock.Until)
	}
	switch o.State {
	case run.Succeeded, run.Superseded:
		return nil
	case run.WaitingCallback:
		callback := *o.Callback
		if callback.Within <= 0 {
			callback.Within = run.DefaultCallbackTimeout.Std()
		}
		callback.Within = min(callback.Within, run.MostCallbackWait)
		return &dispatcher.NextAttempt{At: o.EndedAt.Add(callback.Within).Truncate(time.Millisecond), Callback: &callback}
	}
	return e.nextOfFailed(r, call, o)
}

// nextOfFailed returns when a run whose attempt failed is attempted again; nil: never.
func (e *Engine) nextOfFailed(run plan.Held, call target.Call, o run.Outcome) *dispatcher.NextAttempt {
	next := nextAttempt(call, run.HeldRun, o, loop.RandomShare())
	if next != nil {
		reason := retryFailed
		if !next.CountsAsFailure {
			reason = string(o.Class)
		}
		e.metrics.retries.WithLabelValues(reason).Inc()
	}
	return next
}

// throttlePause is the shortest wait after a throttled attempt.
const throttlePause = time.Second

// nextAttempt returns when a failed run is attempted again; nil: never.
func nextAttempt(call target.Call, r run.HeldRun, o run.Outcome, draw float64) *dispatcher.NextAttempt {
	policy, failures := call.Retry, r.Failures+1
	throttled := o.Class == run.ClassThrottled
	switch {
	case !o.Class.Repeatable(o.HTTPStatus), failures >= policy.MaxAttempts && !throttled:
		return nil
	case call.Delivery == dispatcher.AtMostOnce && !o.Class.NeverSent():
		return nil // it may have been sent
	}
	wait := policy.Delay(failures, draw)
	if throttled {
		// It consumes no attempt, so only max_age ends it: wait longer each time.
		wait = max(policy.Delay(r.Attempt, draw), min(throttlePause, policy.Cap.Std()))
	}
	if o.RetryAfter != nil {
		wait = max(wait, min(*o.RetryAfter, policy.Cap.Std()))
	}
	next := retryFrom(policy, r, o.StartedAt)
	next.At, next.CountsAsFailure = o.EndedAt.Add(wait).Truncate(time.Millisecond), !throttled
	if next.At.After(next.Until) {
		return nil
	}
	return next
}

// retryFrom returns a next attempt without its time. began is when the attempt began or was deferred. The run's first
// attempt determines when the run is given up.
func retryFrom(policy run.Retry, run run.HeldRun, began time.Time) *dispatcher.NextAttempt {
	next := &dispatcher.NextAttempt{Until: run.RetryUntil, StopAtNextFire: policy.StopAtNextFire}
	if next.Until.IsZero() {
		next.Until = began.Add(policy.MaxAge.Std())
	}
	return next
}
