package engine

import (
	"context"
	"errors"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/engine/plan"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// hostOf returns the key of a run's host in its circuits.
func hostOf(run plan.Held) hostOfApp { return hostOfApp{run.Queue.App, run.Queue.Host} }

// checkHost defers an attempt whose host may not be called now, and does not consume it. If a circuit is open, the run
// waits for the host, together with the other runs of its job. If the rate is used up, the run waits for its turn. It
// is a step of an attempt.
//
// No run ends without an attempt because it was deferred for too long: past its time, a run that was never attempted
// may call its host even if the circuit is open. It ends only if the job wants no attempt after the trigger's next
// fire.
func (e *Engine) checkHost(ctx context.Context, a *attempt) result {
	now, r := time.Now(), a.run
	never := r.Attempt == 1 && r.Failures == 0
	over := !r.RetryUntil.IsZero() && e.clock.Of(now).After(r.RetryUntil)
	ends := over && (!never || a.call.Retry.StopAtNextFire)
	d := e.hosts.admit(request{host: hostOf(r), job: r.JobID, run: r.Key, last: over && !ends}, now)
	if d == nil {
		return proceed
	}
	outcome := e.inDatabaseTime(notAttempted(run.Failed, d.class, d, now))
	next := retryFrom(a.call.Retry, r.HeldRun, outcome.StartedAt)
	next.At, next.NotAttempted = outcome.EndedAt.Add(d.wait).Truncate(time.Millisecond).Add(time.Millisecond), true
	if d.class == run.ClassCircuitOpen {
		next.Wait = &dispatcher.HostWait{
			ID:    dispatcher.HostWaitID(r.JobID, r.Queue.Host),
			AppID: run.AppID(a.call.App), JobID: r.JobID, Host: r.Queue.Host, Pause: d.pause, ProbeAt: next.At,
		}
	}
	switch {
	case ends, next.At.After(next.Until) && !never && next.Wait == nil:
		next = nil
	case next.At.After(next.Until) && next.Wait == nil:
		next.Until = next.At // it is attempted at its turn
		fallthrough
	case next.At.After(next.Until): // the circuit is open for longer than the run may wait
		next.At = next.Until
		fallthrough
	default:
		e.metrics.retries.WithLabelValues(string(d.class)).Inc()
	}
	e.record(ctx, r, outcome, next)
	return finished
}

// leaveHosts forgets how jobs failed at hosts that they do not call any more, so that no circuit outlasts the last job of
// its host.
func (e *Engine) leaveHosts(ctx context.Context) error {
	failed := map[int64]int64{} // the jobs, of any revision
	e.hosts.forget(func(_ hostOfApp, id int64) bool {
		failed[id] = 0
		return false
	})
	jobs, err := e.plan.Jobs.Load(ctx, failed)
	if err != nil {
		return err
	}
	e.hosts.forget(func(host hostOfApp, id int64) bool {
		_, asked := failed[id]
		job, exists := jobs[id]
		return asked && (!exists || hostOfApp{job.App, job.Host} != host)
	})
	return nil
}

// probeHosts lets runs go that wait for hosts: one as a probe if a probe is due, and all if the host responded, as many
// as the pool has places for. Each wait has a node with a reminder: the one that noted it, or made its last probe.
// After a window the other nodes look for overdue waits, whose node is dead or has no room.
func (e *Engine) probeHosts(ctx context.Context, now time.Time) error {
	query, wanted := e.retries.dueProbes(now, e.opts.Window)
	if !wanted || !e.fleet.Active() {
		return nil
	}
	if query.Apps = e.opts.Apps; e.fleet.Alone() {
		query.Overdue = now
	}
	due, err := e.store.DueHosts(ctx, query)
	for _, wait := range due {
		loop.Turned(ctx)
		later, wrong := e.probeHost(ctx, wait) // the error of one host does not keep others from their probes
		if err = errors.Join(err, wrong); later > 0 {
			e.retries.remind(reminder{now.Add(later), wait.ID}, e.clock.Until)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return err
}

// probeHost lets the runs of one due wait go. later is the time until more of them may go; 0: until its next probe is
// due.
func (e *Engine) probeHost(ctx context.Context, wait dispatcher.HostWait) (later time.Duration, err error) {
	query, flows := dispatcher.AdoptQuery{WaitsFor: wait.ID, Limit: 1}, wait.Pause == 0
	if flows {
		query.Limit = e.opts.Batch
	} else if later = e.untilProbe(wait); later > 0 {
		return later, nil
	}
	page, err := e.adopter.Look(ctx, &query)
	switch {
	case err != nil:
		return 0, err
	case len(page) == 0: // or this node may not adopt them, or their trigger is paused
		_, err := e.store.DropHostWait(ctx, wait.ID)
		return 0, err
	}
	host := hostOfApp{page[0].Queue.App, page[0].Queue.Host}
	if !flows && moved(host, wait) {
		return flowPause, e.store.HostResponded(ctx, wait.ID, time.Time{})
	}
	if flows && !e.hosts.mayFlow(host, wait.JobID, time.Now()) {
		flows, page = false, page[:1] // the host fails again
	}
	places, _ := e.adopter.Admit(page)
	if len(places) == 0 {
		return roomPause, nil
	}
	if !flows {
		if later := e.hosts.takeProbe(wait, host, time.Now()); later > 0 {
			e.adopter.GiveBack(places)
			return later, nil
		}
		pause := longer(wait.Pause)
		next := e.clock.Now().Add(pause)
		won, err := e.store.TakeProbe(ctx, wait, pause, next)
		if err != nil || !won {
			e.adopter.GiveBack(places)
			return 0, err
		}
		e.retries.remind(reminder{next, wait.ID}, e.clock.Until)
		e.hosts.adopted(page[0].Key, time.Now())
	}
	e.adopter.Adopt(ctx, query, places)
	if flows {
		return flowPause, nil
	}
	return 0, nil
}

// untilProbe returns how long no probe may go, as far as the node knows without the database. A host that is down may
// have a probe due for each of its jobs, but only one a second may go. This saves the queries for the others.
func (e *Engine) untilProbe(wait dispatcher.HostWait) time.Duration {
	job, cached := e.plan.Jobs.Get(wait.JobID, 0)
	if !cached || job.Host != wait.Host {
		return 0
	}
	return e.hosts.untilProbe(hostOfApp{job.App, wait.Host}, wait.JobID, time.Now())
}

// moved reports whether a job was deleted or now calls another host than the one that its runs wait for. Then nothing
// keeps them: they wait for the other host, if at all. If this node cannot read the job, it does not know the host.
func moved(now hostOfApp, wait dispatcher.HostWait) bool {
	deleted, unread := now.app == "", now.host == ""
	return deleted || !unread && now.host != wait.Host
}

const (
	// roomPause is when a node looks again for runs that found no place in the pool. Room in the pool wakes it earlier.
	roomPause = time.Second
	// flowPause is the time between two portions of the runs that waited for a host that responded.
	flowPause = loop.ShortestPause
)

// dueProbes returns the query for the waits that this node looks at now. wanted is false if there cannot be any.
func (r *retries) dueProbes(now time.Time, window time.Duration) (query dispatcher.HostQuery, wanted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	query = dispatcher.HostQuery{Now: now, IDs: r.probes}
	if !r.none && plan.Passed(r.probedAt, now, mostOf(window)) {
		query.Overdue, r.probedAt = now.Add(-window), now
	}
	r.probes = nil
	return query, len(query.IDs) > 0 || !query.Overdue.IsZero()
}
