package engine

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// hostOf returns the host that a run calls, as its circuits know it.
func hostOf(run heldRun) hostOfApp { return hostOfApp{run.Queue.App, run.Queue.Host} }

// checkHost defers an attempt whose host may not be called now, and does not consume it. A run of a circuit waits for
// the host, together with the other runs of its job; one that is too many for a rate waits for its turn. It is a
// step of an attempt.
//
// No run ends without an attempt because it was deferred for too long: past its time, a run that was never attempted
// may call its host whatever the circuit says. Only where the job wants no attempt after the trigger's next fire
// does it end.
func (e *Engine) checkHost(ctx context.Context, a *attempt) result {
	now, run := time.Now(), a.run
	never := run.Attempt == 1 && run.Failures == 0
	over := !run.RetryUntil.IsZero() && e.clock.of(now).After(run.RetryUntil)
	ends := over && (!never || a.call.Retry.StopAtNextFire)
	d := e.hosts.admit(request{host: hostOf(run), job: run.JobID, run: run.RunKey, last: over && !ends}, now)
	if d == nil {
		return proceed
	}
	outcome := e.inDatabaseTime(notAttempted(dispatcher.RunFailed, d.class, d, now))
	next := retryFrom(a.call.Retry, run.HeldRun, outcome.StartedAt)
	next.At, next.NotAttempted = outcome.EndedAt.Add(d.wait).Truncate(time.Millisecond).Add(time.Millisecond), true
	if d.class == dispatcher.ClassCircuitOpen {
		next.Wait = &dispatcher.HostWait{
			ID:    dispatcher.HostWaitID(a.call.App, a.call.Job, run.Queue.Host),
			AppID: dispatcher.AppID(a.call.App), JobID: run.JobID, Host: run.Queue.Host, Pause: d.pause, ProbeAt: next.At,
		}
	}
	switch {
	case ends, next.At.After(next.Until) && !never && next.Wait == nil:
		next = nil
	case next.At.After(next.Until) && next.Wait == nil:
		next.Until = next.At // it waits for its turn and is attempted then
		fallthrough
	case next.At.After(next.Until): // the circuit is open for longer than the run may wait, which decides
		next.At = next.Until
		fallthrough
	default:
		e.metrics.retries.WithLabelValues(string(d.class)).Inc()
	}
	e.record(ctx, run, outcome, next)
	return finished
}

// hostResponds lets the runs of a job go that wait for its host. If that fails, the next probe does it.
func (e *Engine) hostResponds(ctx context.Context, run heldRun) {
	job, ok := e.jobs.get(run.JobID, 0)
	if !ok {
		return
	}
	e.logIf(ctx, "let runs go that wait for a host",
		e.store.HostResponded(ctx, dispatcher.HostWaitID(job.App, job.Name, run.Queue.Host), time.Time{}))
	e.retries.probeNow()
}

// probeHosts lets runs go that wait for hosts: one as a probe where it is time for one, and all where the host
// responded, as many as the pool has places for. It returns when to look again; zero: no run waits.
func (e *Engine) probeHosts(ctx context.Context, now time.Time) (again time.Time, err error) {
	if !e.retries.mayProbe(now, e.opts.Window) || !e.fleet.active() {
		return e.retries.nextProbe(), nil
	}
	due, err := e.store.DueHosts(ctx, e.opts.Apps, now)
	if len(due) == 0 {
		again = now.Add(e.opts.Window) // another node took it, or it is not for this one
	}
	for _, wait := range due {
		if err != nil {
			break
		}
		turned(ctx)
		var later time.Duration
		if later, err = e.probeHost(ctx, wait); later > 0 {
			again = earlier(again, now.Add(later))
		}
	}
	if err != nil {
		return time.Time{}, err
	}
	first, err := e.store.NextProbe(ctx)
	if err != nil {
		return time.Time{}, err
	}
	return e.retries.planProbe(now, again, e.afterGrace(first)), nil
}

// probeHost lets the runs go of one wait that is due. later is how long it takes until more of them may go; 0: until its
// next probe is due.
func (e *Engine) probeHost(ctx context.Context, wait dispatcher.HostWait) (later time.Duration, err error) {
	query, flows := dispatcher.AdoptQuery{WaitsFor: wait.ID, Limit: 1}, wait.Pause == 0
	if flows {
		query.Limit = e.opts.Batch
	} else if later = e.untilProbe(wait); later > 0 {
		return later, nil
	}
	page, err := e.look(ctx, &query)
	switch {
	case err != nil:
		return 0, err
	case len(page) == 0:
		if dropped, err := e.store.DropHostWait(ctx, wait.ID); err != nil || dropped {
			return 0, err
		}
		return e.opts.Window, nil // runs that this node may not adopt, or that wait because their trigger is paused
	}
	host := hostOfApp{page[0].queue.App, page[0].queue.Host}
	if !flows && moved(host, wait) {
		return flowPause, e.store.HostResponded(ctx, wait.ID, time.Time{})
	}
	if flows && !e.hosts.mayFlow(host, wait.JobID, time.Now()) {
		flows, page = false, page[:1] // it fails again
	}
	places, _ := e.admitted(page)
	if len(places) == 0 {
		return roomPause, nil
	}
	if !flows {
		if later := e.hosts.takeProbe(wait, host, time.Now()); later > 0 {
			e.giveBack(places)
			return later, nil
		}
		pause := longer(wait.Pause)
		next := e.clock.now().Add(pause)
		won, err := e.store.TakeProbe(ctx, wait, pause, next)
		if err != nil || !won {
			e.giveBack(places)
			return 0, err
		}
		e.retries.remind(reminder{at: next, probe: true}, e.clock.until)
		e.hosts.adopted(page[0].RunKey, time.Now())
	}
	e.adoptAdmitted(ctx, query, places)
	if flows {
		return flowPause, nil
	}
	return 0, nil
}

// untilProbe returns for how long there must be no probe, as far as that can be told without the database. There may be
// one of each job of a host that is down, and all are due while only one a second may go. So it saves the look for
// their runs.
func (e *Engine) untilProbe(wait dispatcher.HostWait) time.Duration {
	job, cached := e.jobs.get(wait.JobID, 0)
	if !cached || job.host != wait.Host {
		return 0
	}
	return e.hosts.untilProbe(hostOfApp{job.App, wait.Host}, wait.JobID, time.Now())
}

// moved reports whether a job calls another host by now than its runs wait for, or is deleted. Then nothing keeps them:
// they wait for the other host, if at all. Of a job that this node cannot read, it does not know the host.
func moved(now hostOfApp, wait dispatcher.HostWait) bool {
	deleted, unread := now.app == "", now.host == ""
	return deleted || !unread && now.host != wait.Host
}

const (
	// roomPause is when a node looks again for runs that found no place in the pool. It is woken earlier when there
	// is room again.
	roomPause = time.Second
	// flowPause is the time between two portions of the runs that waited for a host that responded.
	flowPause = shortestPause
)

// mayProbe reports whether a run that waits for a host may go, as far as this node knows. It knows after a window of
// the waits that others have noted.
func (r *retries) mayProbe(now time.Time, window time.Duration) (may bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	may = r.probeSoon || !r.probeAt.IsZero() && !now.Before(r.probeAt) || passed(r.probedAt, now, window)
	r.probeSoon = false
	return may
}

// nextProbe returns when to look again for runs that wait for a host.
func (r *retries) nextProbe() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.probeAt
}

// planProbe plans the next look for runs that wait for a host, and returns its time. again is when the look that was just
// made wants another, zero if there was none or it does not say; first is when the first probe is due, zero if no run
// waits.
func (r *retries) planProbe(now, again, first time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if again.IsZero() && !first.IsZero() {
		again = later(first, now.Add(roomPause)) // more are due than one look lets go
		if r.probeAt.After(now) {
			again = earlier(again, r.probeAt) // what comes more often than that must not put it off
		}
	}
	r.probeAt, r.probedAt = again, now
	return again
}

// probeNow makes retryOnce look at once for runs that wait for a host.
func (r *retries) probeNow() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.probeSoon = true
	wake(r.wake)
}
