package engine

import (
	"container/heap"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// retries wake the node when runs are to be attempted again. It is only an alarm clock: the runs
// are rows that nobody holds, and anyone who adopts one first has it. For those that this node has
// recorded it rings to the millisecond, for those of others a grace later, in case that they are gone.
type retries struct {
	mu    sync.Mutex
	own   instants // when the runs recorded here are due
	alarm *time.Timer
	ring  chan struct{}
	// looked is when the runs whose time is over were looked for; only retryOnce uses it.
	looked time.Time
}

func newRetries() *retries {
	r := &retries{ring: make(chan struct{}, 1)}
	r.alarm = time.AfterFunc(time.Hour, func() { wake(r.ring) })
	r.alarm.Stop()
	return r
}

// recorded notes those of records that are attempted again. until is the clock's.
func (r *retries) recorded(records []dispatcher.Record, until func(time.Time) time.Duration) {
	for _, record := range records {
		if record.Next == nil {
			continue
		}
		r.mu.Lock()
		heap.Push(&r.own, record.Next.At)
		if r.own[0].Equal(record.Next.At) {
			r.alarm.Reset(until(record.Next.At))
		}
		r.mu.Unlock()
	}
}

// pass forgets what is due by now, and sets the alarm to what is next: of ours, or of others.
func (r *retries) pass(now, others time.Time, until func(time.Time) time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.own) > 0 && !r.own[0].After(now) {
		heap.Pop(&r.own)
	}
	next := others
	if len(r.own) > 0 && (next.IsZero() || r.own[0].Before(next)) {
		next = r.own[0]
	}
	if !next.IsZero() {
		r.alarm.Reset(until(next))
	}
}

// instants is a heap of times.
type instants []time.Time

func (h instants) Len() int           { return len(h) }
func (h instants) Less(i, j int) bool { return h[i].Before(h[j]) }
func (h instants) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *instants) Push(x any)        { *h = append(*h, x.(time.Time)) }

func (h *instants) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// retryLoop adopts runs that are to be attempted again, when they are due. It looks once a window
// whatever the alarm says, for what nodes that are gone have left.
func (e *Engine) retryLoop(ctx context.Context) {
	defer e.retries.alarm.Stop()
	e.every(ctx, "retry", e.opts.Window, e.retries.ring, e.retryOnce)
}

// retryOnce adopts the runs that are to be attempted again by now.
func (e *Engine) retryOnce(ctx context.Context, now time.Time) error {
	e.retries.pass(now, time.Time{}, e.clock.until)
	if now.Sub(e.retries.looked) >= e.opts.Window {
		given, err := e.store.GiveUp(ctx, time.Time{})
		if err != nil {
			return err
		}
		if given > 0 {
			e.log.InfoContext(ctx, "retrying runs given up: their time is over", "count", given)
		}
		e.retries.looked = now
	}
	if err := e.adoptAll(ctx, dispatcher.AdoptQuery{Retries: true}); err != nil {
		return err
	}
	others, err := e.store.NextRetry(ctx, now)
	if err != nil {
		return err
	}
	if !others.IsZero() && !e.fleet.alone() {
		others = others.Add(e.opts.Grace)
	}
	e.retries.pass(now, others, e.clock.until)
	return nil
}

// retryFailed is the reason of retries that is no class.
const retryFailed = "failed"

// judge draws the conclusions of an attempt that was made, and returns when there is another; nil:
// this was the last.
func (e *Engine) judge(ctx context.Context, run heldRun, call dispatcher.Call, o dispatcher.Outcome) *dispatcher.NextAttempt {
	e.gate.report(run.lane.host, o, time.Now())
	if o.State == dispatcher.RunSucceeded {
		return nil
	}
	if o.HTTPStatus == http.StatusGone {
		reason := fmt.Sprintf("the target answered 410 (Gone) to run %s: it wants no more calls; resume the trigger when it does", run.RunKey)
		e.logIf(ctx, "disable trigger", e.store.Disable(ctx, run.RunKey, reason, time.Time{}))
	}
	next := nextAttempt(call, run.HeldRun, o, randomShare())
	if next != nil {
		reason := retryFailed
		if !next.CountsAsFailure {
			reason = string(o.Class)
		}
		e.metrics.retries.WithLabelValues(reason).Inc()
	}
	return next
}

// throttlePause is the least wait after a target had no room.
const throttlePause = time.Second

// nextAttempt returns when a run is attempted again that failed; nil if it is not to be.
func nextAttempt(call dispatcher.Call, run dispatcher.HeldRun, o dispatcher.Outcome, draw float64) *dispatcher.NextAttempt {
	policy, failures := call.Retry, run.Failures+1
	throttled := o.Class == dispatcher.ClassThrottled
	switch {
	case !o.Class.Repeatable(o.HTTPStatus), failures >= policy.MaxAttempts && !throttled:
		return nil
	case call.Delivery == dispatcher.AtMostOnce && !o.Class.NeverSent():
		return nil // it may have been sent
	}
	wait := policy.Delay(failures, draw)
	if throttled {
		// It costs no attempt, so nothing but max_age ends this: the more often, the longer it waits.
		wait = max(policy.Delay(run.Attempt, draw), min(throttlePause, policy.Cap.Std()))
	}
	if o.RetryAfter != nil {
		wait = max(wait, min(*o.RetryAfter, policy.Cap.Std()))
	}
	next := retryFrom(policy, run, o.StartedAt)
	next.At, next.CountsAsFailure = o.EndedAt.Add(wait).Truncate(time.Millisecond), !throttled
	if next.At.After(next.Until) {
		return nil
	}
	return next
}

// retryFrom returns a next attempt without its time. An attempt that began, or was defers, at
// began is the run's first if the run does not know yet when it is given up.
func retryFrom(policy dispatcher.Retry, run dispatcher.HeldRun, began time.Time) *dispatcher.NextAttempt {
	next := &dispatcher.NextAttempt{Until: run.RetryUntil, StopAtNextFire: policy.StopAtNextFire}
	if next.Until.IsZero() {
		next.Until = began.Add(policy.MaxAge.Std())
	}
	return next
}

// putOff records that an attempt is made later, if its host may not be called now, and tells
// whether that is so. The attempt is not consumed.
func (e *Engine) putOff(ctx context.Context, run heldRun, call dispatcher.Call) bool {
	now := time.Now()
	wait, class, reason := e.gate.admit(run.lane.host, run.RunKey, now)
	if wait <= 0 {
		return false
	}
	record := dispatcher.Record{RunKey: run.RunKey, Node: run.node, Token: run.Token, Attempt: run.Attempt, Outcome: notAttempted(dispatcher.RunFailed, class, reason)}
	o := &record.Outcome
	o.StartedAt, o.EndedAt = e.clock.of(now), e.clock.of(now)
	record.Next = retryFrom(call.Retry, run.HeldRun, o.StartedAt)
	record.Next.At, record.Next.NotAttempted = o.EndedAt.Add(wait).Truncate(time.Millisecond).Add(time.Millisecond), true
	if record.Next.At.After(record.Next.Until) {
		record.Next = nil
	} else {
		e.metrics.retries.WithLabelValues(string(class)).Inc()
	}
	if run.delayed {
		e.delays.begun(run.TriggerID)
	}
	e.recorder.put(ctx, record)
	return true
}
