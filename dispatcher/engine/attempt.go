package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/engine/plan"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// attempt is one attempt of a run on its way through the steps.
type attempt struct {
	run     plan.Held
	call    target.Call
	hasSlot bool // or may have one
	over    bool // the run may not go to an endpoint: it waits, was skipped, or is another node's
	outcome run.Outcome
	clock   plan.Sample // converts the time at which the outcome began: the machine may be suspended before it ends
	release func()      // ends the protection of a long attempt; nil without one
}

// result is how an attempt goes on after a step.
type result int

const (
	proceed  result = iota // with the next step
	refused                // the attempt may not begin: let go of its run
	finished               // the attempt is recorded, deferred, or left to another node
)

// allowed is the result of a step that only checks that the attempt may begin.
func allowed(may bool) result {
	if may {
		return proceed
	}
	return refused
}

// attempt makes one attempt and hands its outcome to the recorder. The lease is checked last,
// immediately before the first byte.
func (e *Engine) attempt(ctx context.Context, run plan.Held) {
	a := e.attempts.Get().(*attempt)
	a.run = run
	if run.Detail.Job != nil { // another run waited elsewhere
		e.metrics.waits.Observe(max(0, -e.clock.Until(run.Due)).Seconds())
	}
	defer func() {
		if a.release != nil {
			a.release()
		}
		*a = attempt{}
		e.attempts.Put(a)
	}()
	for _, step := range []func(context.Context, *attempt) result{
		e.resolve, e.endAccepted, e.takeSlot, e.spread, e.checkHost, e.protect, e.readState, e.begin, e.checkLease, e.invoke, e.conclude,
	} {
		switch step(ctx, a) {
		case refused:
			e.letGo(ctx, a)
			return
		case finished:
			return
		}
	}
}

// resolve finds the call to make. If it finds none, it records that.
func (e *Engine) resolve(ctx context.Context, a *attempt) result {
	err := dispatcher.WithoutPanic(func() (err error) {
		a.call, err = e.callOf(ctx, a.run)
		return err
	})
	if err == nil {
		return proceed
	}
	return e.unresolved(ctx, a, err)
}

// unresolved ends or defers an attempt without a call.
func (e *Engine) unresolved(ctx context.Context, a *attempt, err error) result {
	var held *heldError
	switch {
	case errors.Is(context.Cause(ctx), pool.ErrCutOff):
		return refused // the database did not answer in time
	case errors.Is(err, plan.ErrSuspended):
		// The app was suspended after the node had won the run. No node adopts it until the suspension is lifted.
		loop.UntilDone(ctx, e.log.Logger, "hand back runs of a suspended app", 1, func() error {
			return e.store.Release(ctx, []run.HeldRun{a.run.HeldRun})
		})
		e.pool.Disown(pool.KeyOf(a.run.HeldRun))
		return finished
	case errors.Is(err, errCutOff):
		a.outcome = notAttempted(run.Cancelled, run.ClassCancelled, err, time.Now())
	case errors.As(err, &held):
		e.wait(ctx, a, held)
		return finished
	case errors.Is(err, errOvertaken):
		a.outcome = notAttempted(run.Cancelled, run.ClassCancelled, err, time.Now())
	case errors.Is(err, plan.ErrGone):
		a.outcome = notAttempted(run.Cancelled, run.ClassJobDeleted, err, time.Now())
	default:
		class := run.ClassOther
		var template *target.TemplateError
		var outside *plan.OutsideError
		var panicked *dispatcher.PanicError
		switch {
		case errors.As(err, &panicked):
			class = run.ClassPanic
		case errors.As(err, &template):
			class = run.ClassTemplate
		case errors.Is(err, errNoGroup):
			class = run.ClassNoEndpoint
		case errors.As(err, &outside):
			class = run.ClassBounds
		}
		a.outcome = notAttempted(run.Failed, class, err, time.Now())
	}
	e.ended(ctx, a)
	e.record(ctx, a.run, e.inDatabaseTime(a.outcome), nil)
	return finished
}

// checkLease checks again that the node may act on the run: after a freeze or a lost connection to the database, the
// run may belong to another node. If the lease comes back and the run is still the node's own, the attempt goes on.
func (e *Engine) checkLease(ctx context.Context, a *attempt) result {
	failpoint.Hit(failpoint.BeforeSend)
	return allowed(e.mayAct(ctx, a.run))
}

// mayAct reports whether the node may act on a run. If it has no lease, it waits for one.
func (e *Engine) mayAct(ctx context.Context, run plan.Held) bool {
	return e.holds(run) || e.waitUntilDue(ctx, run, nil)
}

// invoke calls the target. It does not record an attempt that the end of the drain cut off: the
// node that adopts the run records it as lost. If the attempt was cut off before anything was sent,
// as while it connected, the run is handed back instead.
func (e *Engine) invoke(ctx context.Context, a *attempt) result {
	late, begun := -e.clock.Until(a.run.Due), time.Now()
	a.clock = e.clock.Best()
	if !occupies(a) {
		e.metrics.began(a.run, &a.call, late, begun)
	} else {
		a.call.Occupy = func(endpoint string, ifFree bool) target.EndpointGrant { return e.occupy(ctx, a, endpoint, ifFree) }
	}
	a.call.Held = e.fleet.Holding(a.run.Node)
	endSpan := e.beginSpan(ctx, a)
	a.outcome = e.invoker.Invoke(ctx, a.call)
	if a.over || a.outcome.NotSent && a.outcome.State == run.Cancelled && ctx.Err() == nil {
		return refused // without a span: nothing was sent, because the run waits, or may be another node's
	}
	if endSpan != nil {
		endSpan(e.inDatabaseTime(a.outcome))
	}
	if occupies(a) {
		e.metrics.began(a.run, &a.call, late, begun) // not earlier, because the run might have had to wait
	}
	failpoint.Hit(failpoint.AfterResponse)
	if errors.Is(context.Cause(ctx), pool.ErrCutOff) {
		if a.outcome.NotSent {
			return refused
		}
		return finished
	}
	return proceed
}

// beginSpan begins the span of an attempt, and notes the sampling of its trace in the call. end ends the span; it is
// nil if there is no span.
func (e *Engine) beginSpan(ctx context.Context, a *attempt) (end func(run.Outcome)) {
	if e.opts.Tracer == nil {
		return nil
	}
	a.call.Sampling, end = e.opts.Tracer.Begin(ctx, a.call, e.clock.Of(time.Now()))
	return end
}

// conclude decides when the run is attempted again, if at all, and hands the outcome over.
func (e *Engine) conclude(ctx context.Context, a *attempt) result {
	e.ended(ctx, a)
	e.timeAttempt(a)
	e.omitResponse(a)
	e.log.Failed(ctx, "ask for the time after a suspension", e.clock.SampleIfSuspended(ctx))
	outcome := e.inDatabaseTime(a.outcome)
	outcome.StartedAt = a.clock.Of(a.outcome.StartedAt)
	e.record(ctx, a.run, outcome, e.planRetry(ctx, a.run, a.call, outcome))
	if e.opts.OnOutcome != nil {
		e.opts.OnOutcome(a.call, outcome)
	}
	return finished
}

// letGo lets go of a run that may not begin: it is another node's, or over, or its state is unknown. The node that
// adopts or ends the run accounts for it. If the end of the drain cut it off before anything was sent, letGo hands it
// back.
func (e *Engine) letGo(ctx context.Context, a *attempt) {
	if a.hasSlot {
		e.slots.giveBack(a.run.HeldRun)
	}
	if errors.Is(context.Cause(ctx), pool.ErrCutOff) {
		e.pool.HandBack(a.run.HeldRun)
		return
	}
	e.pool.Disown(pool.KeyOf(a.run.HeldRun))
}

// inDatabaseTime returns an outcome with its times by the database's clock.
func (e *Engine) inDatabaseTime(o run.Outcome) run.Outcome {
	o.StartedAt, o.EndedAt = e.clock.Of(o.StartedAt), e.clock.Of(o.EndedAt)
	return o
}

// notAttempted is the outcome of an attempt that ended before its call, at a local time.
func notAttempted(state run.State, class run.Class, reason error, now time.Time) run.Outcome {
	return run.Outcome{State: state, StartedAt: now, EndedAt: now, Class: class, Error: reason.Error()}
}

// waitUntilDue waits until a run is due by the database's clock and the node may act on it. It
// returns false when stop or ctx ends first, or when the node was marked dead meanwhile: then the
// run is another node's.
func (e *Engine) waitUntilDue(ctx context.Context, run plan.Held, stop <-chan struct{}) bool {
	var timer *time.Timer // most runs need none
	for {
		select {
		case <-stop:
			return false
		default:
		}
		wait := e.clock.Until(run.Due)
		switch {
		case wait > 0:
		case run.Node != e.fleet.ID():
			return false
		case e.fleet.Leased():
			return ctx.Err() == nil
		default:
			wait = plan.LeasePause
		}
		if timer == nil {
			timer = time.NewTimer(wait)
			defer timer.Stop()
		} else {
			timer.Reset(wait)
		}
		select {
		case <-timer.C:
		case <-stop:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// omitResponse drops the response of an outcome if the app has used its quota of stored bytes.
func (e *Engine) omitResponse(a *attempt) {
	if a.outcome.Response == nil {
		return
	}
	job := a.run.Detail.Job
	if job == nil {
		job, _ = e.plan.Jobs.Get(a.run.JobID, 0)
	}
	if job != nil && job.Bounds != nil {
		a.outcome.Response = e.chores.Bytes.Take(job.App, job.Bounds.Quotas.BytesKept, a.outcome.Response)
	}
}

// callOf finds the call of a run in the cache or, for a run that waited long, in the database. It asks the database
// until it responds.
func (e *Engine) callOf(ctx context.Context, r plan.Held) (target.Call, error) {
	call, err := e.plan.Jobs.Call(r)
	if errors.Is(err, plan.ErrGone) || errors.Is(err, plan.ErrOutdated) {
		loop.UntilDone(ctx, e.log.Logger, "read job", 1, func() error { return e.plan.Jobs.Read(ctx, []int64{r.JobID}) })
		call, err = e.plan.Jobs.Call(r)
	}
	if errors.Is(err, plan.ErrOutdated) { // the job was deleted
		err = plan.ErrGone
	}
	if r.Accepted != nil {
		return call, err // nothing is called
	}
	call.Missed = r.Detail.Missed
	for _, part := range []struct {
		wanted bool
		add    func() error
	}{
		{r.HasInput, func() error { return e.addInput(ctx, r.HeldRun, &call) }},
		{r.Kind == run.KindCatchUp && call.Missed == nil, func() error { call.Missed = e.missedRange(ctx, r); return nil }},
		{call.Templates.UseFires() && call.Trigger != "", func() error { return e.addFires(ctx, r, &call) }},
		{call.Target.Group != nil, func() error { return e.addGroup(ctx, &call) }},
		{r.Shard > 0, func() error { return e.addShard(ctx, r.HeldRun, &call) }},
	} {
		if err == nil && part.wanted {
			err = part.add()
		}
	}
	return call, err
}

// missedRange reads the range that a catch-up run of another node stands for. It returns nil if the run is past its
// retention, which the recorder will find.
func (e *Engine) missedRange(ctx context.Context, run plan.Held) (missed *run.MissedRange) {
	loop.UntilDone(ctx, e.log.Logger, "read catch-up run", 1, func() error {
		found, err := e.store.Run(ctx, run.String())
		if missed = found.Missed; errors.Is(err, dispatcher.ErrNotFound) {
			return nil
		}
		return err
	})
	return missed
}

// addFires adds to a call the fires before and after its own, by the schedule under which it was
// claimed. That schedule is in memory or, for a run of another node or an earlier attempt, on record.
func (e *Engine) addFires(ctx context.Context, run plan.Held, call *target.Call) error {
	if s := run.Detail.Schedule; s != nil {
		call.PreviousFire, call.NextFire = dispatcher.FiresAround(s, run.ScheduledAt)
		return nil
	}
	var template *target.TemplateError
	loop.UntilDone(ctx, e.log.Logger, "read the schedule of a run", 1, func() (err error) {
		call.PreviousFire, call.NextFire, err = dispatcher.NewPastSchedules(e.store, call.App).Around(ctx, run.JobID,
			run.TriggerID, run.ScheduledAt)
		if errors.As(err, &template) {
			return nil // another try would fail in the same way
		}
		return err
	})
	if template != nil {
		return template
	}
	return nil
}

// addGroup adds to a call the endpoint group that its target names. It asks the database until it responds.
func (e *Engine) addGroup(ctx context.Context, call *target.Call) error {
	name := call.Target.GroupName()
	missing := false
	read := loop.UntilDone(ctx, e.log.Logger, "read endpoint group", 1, func() (err error) {
		call.Group, err = e.plan.Groups.Get(ctx, call.App, name, e.clock.Now())
		if missing = errors.Is(err, dispatcher.ErrNotFound); missing {
			return nil // another try would fail in the same way
		}
		return err
	})
	switch {
	case missing:
		return fmt.Errorf("%w: group %s of app %s", errNoGroup, name, call.App)
	case !read:
		return errCutOff
	}
	e.used.note(call, time.Now())
	return nil
}

var (
	errNoGroup = errors.New("the endpoint group of the job was deleted before this attempt began")
	errCutOff  = errors.New("the attempt was cancelled")
)

// A target that accepts an attempt ends it later by a callback. Until then the run is a row without a node, like a
// retrying run, and it is due at its deadline. The API records a success itself. After the deadline, or a callback that
// reports a failure, a node adopts the run: it calls nothing, and records the end of the attempt as if the target had
// just responded. So retries, slots and fixed delays need no special case.

// endAccepted records the end of an attempt that its target accepted. It is a step of an attempt, for runs that were
// adopted at their deadline or after a callback.
func (e *Engine) endAccepted(ctx context.Context, a *attempt) result {
	if a.run.Accepted == nil {
		return proceed
	}
	failpoint.Hit(failpoint.BeforeCallbackEnd)
	of := *a.run.Accepted
	o := run.Outcome{
		State: run.TimedOut, StartedAt: of.StartedAt, EndedAt: e.clock.Now(), HTTPStatus: of.HTTPStatus, Class: run.ClassCallbackTime,
		Error: fmt.Sprintf("no callback came in time; the target has %s after it accepted the attempt, and after each heartbeat",
			input.Duration(of.Within)),
	}
	if o.StartedAt.IsZero() {
		o.StartedAt = a.run.ClaimedAt
	}
	switch {
	case of.TimedOut:
		o.Class, o.Error = run.ClassFunctionTime, of.Message
	case of.Failed:
		o.State, o.Class, o.Error = run.Failed, run.ClassCallback, of.Message
	}
	if o.Error == "" {
		o.Error = "the target said so by its callback"
	}
	a.outcome = o
	e.ended(ctx, a)
	if a.call.Slots > 0 || occupies(a) {
		e.slots.took(a.run.HeldRun) // the end of the run gives it back
	}
	e.record(ctx, a.run, a.outcome, e.nextOfFailed(a.run, a.call, a.outcome))
	if e.opts.OnOutcome != nil {
		e.opts.OnOutcome(a.call, a.outcome)
	}
	return finished
}
