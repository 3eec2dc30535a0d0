package engine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/backoff"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// changes collects the contents of notifications until the node looks at them.
type changes struct {
	mu         sync.Mutex
	everything bool
	jobs       map[int64]bool
	nodes      bool
	wake       loop.Signal
}

const (
	// changesPause is the shortest time between two looks that notifications cause, however many notifications come.
	changesPause = time.Second
	// mostJobsRead is how many changed jobs are read by id. If more changed, the window is polled.
	mostJobsRead = 1000
)

// note adds the content of a notification.
func (c *changes) note(add func(c *changes)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	add(c)
	if len(c.jobs) > mostJobsRead {
		c.everything = true
	}
	if c.everything {
		clear(c.jobs)
	}
	c.wake.Notify()
}

// take returns what was noted since the last call.
func (c *changes) take() (everything, nodes bool, jobs []int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	everything, nodes, jobs = c.everything, c.nodes, slices.Sorted(maps.Keys(c.jobs))
	c.everything, c.nodes = false, false
	clear(c.jobs)
	return everything, nodes, jobs
}

// listenLoop receives notifications. If they fail, the poll still finds everything, later.
func (e *Engine) listenLoop(ctx context.Context) {
	e.every(ctx, "listen", pace{interval: time.Second}, func(ctx context.Context, _ time.Time) error {
		loop.Rests(ctx)
		return e.store.Listen(ctx, e.hear)
	})
}

// hear acts on a notification. It never waits.
func (e *Engine) hear(n dispatcher.Notification) {
	switch {
	case n.Run != "":
		if run, err := run.ParseKey(n.Run); err == nil {
			e.claims.Cancel(pool.Attempt(run, n.Token, n.Attempt))
		}
	case n.Adopt:
		e.wakeAdopt.Notify()
	case n.Ends:
		e.wakeFollow.Notify()
	case n.Backfill:
		e.wakeBackfill.Notify()
	case n.Bulk:
		e.wakeBulk.Notify()
	case n.Callback:
		e.retries.remind(reminder{at: e.clock.Now()}, e.clock.Until)
	case n.Nodes:
		e.wakeAdopt.Notify() // for the runs of a node that left
		e.changes.note(func(c *changes) { c.nodes = true })
	case n.JobID != 0:
		e.plan.Jobs.Drop(n.JobID)
		e.changes.note(func(c *changes) { c.jobs[n.JobID] = true })
	case n.Group != "":
		e.plan.Groups.Change(n.App, n.Group)
	case n.App != "":
		e.plan.Jobs.DropApp(n.App)
		e.plan.Groups.DropApp(n.App)
		e.used.dropIf(func(app string) bool { return app == n.App })
		if len(e.opts.Apps) == 0 || slices.Contains(e.opts.Apps, n.App) {
			e.changes.note(func(c *changes) { c.everything = true })
		}
	default:
		e.plan.Groups.Clear()
		e.used.dropIf(func(string) bool { return true })
		e.changes.note(func(c *changes) { c.everything = true })
	}
}

// changeLoop reads the changes that were noted: at once, but at most once a second.
func (e *Engine) changeLoop(ctx context.Context) {
	e.every(ctx, "changes", pace{interval: time.Minute, wake: e.changes.wake}, func(ctx context.Context, now time.Time) error {
		everything, nodes, jobs := e.changes.take()
		if nodes {
			backoff.Sleep(ctx, loop.RandomBelow(e.opts.Heartbeat/10+1)) // not all nodes at once
			e.wakeHeartbeat.Notify()
		}
		var err error
		switch {
		case everything:
			e.plan.LabelSets.Changed()
			e.plan.Floors.Reset()
			e.wakePoll.Notify()
			e.wakeAdopt.Notify()
		case len(jobs) > 0:
			e.plan.LabelSets.Changed()
			err = e.plan.PlanChanged(ctx, jobs, now)
			e.wakeAdopt.Notify() // a fixed delay may go on
		}
		if everything || len(jobs) > 0 {
			err = errors.Join(err, e.leaveHosts(ctx))
		}
		if everything || nodes || len(jobs) > 0 {
			backoff.Sleep(ctx, changesPause)
		}
		return err
	})
}
