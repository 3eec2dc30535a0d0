package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// injectors inject the faults other than kills.
var injectors = map[string]func(*chaos, context.Context, *node) error{
	"freeze":    (*chaos).freezeNode,
	"suspend":   (*chaos).suspendNode,
	"partition": (*chaos).partitionNode,
	"flap":      (*chaos).flapNode,
	"responses": (*chaos).loseResponses,
	"slow":      (*chaos).slowNode,
	"clock":     (*chaos).shiftClock,
	"restart":   (*chaos).restartDatabase,
	"backend":   (*chaos).killBackend,
	"disk":      (*chaos).fillDisk,
	"drain":     (*chaos).drainNode,
	"storm":     (*chaos).storm,
	"deploy":    (*chaos).deploy,
}

// order is one round of faults. Important ones come more often.
var order = []string{"freeze", "responses", "partition", "storm", "restart", "clock", "responses", "suspend", "flap",
	"disk", "partition", "freeze", "deploy", "slow", "drain", "suspend", "backend", "responses", "restart"}

// besides are faults next to these: nodes lose their targets, rows are poisoned, and an app moves.
var besides = []string{"target", "poison", "import"}

// injectFaults injects one fault after the other.
func (c *chaos) injectFaults(ctx context.Context) {
	kinds := slices.DeleteFunc(slices.Clone(listed(c.options.faults, order)), func(kind string) bool { return slices.Contains(besides, kind) })
	for i := c.intN(len(order)); len(kinds) > 0 && ctx.Err() == nil; i++ {
		pause(ctx, c.between(300*time.Millisecond, 1500*time.Millisecond))
		if ctx.Err() != nil {
			return
		}
		kind := kinds[i%len(kinds)]
		inject, known := injectors[kind]
		if !known {
			c.trouble(fmt.Errorf("there is no fault %q", kind))
			return
		}
		if err := inject(c, ctx, c.nodes[c.intN(len(c.nodes))]); err != nil && ctx.Err() == nil {
			c.trouble(fmt.Errorf("inject %s: %w", kind, err))
		}
	}
}

// freezeNode halts a node for longer than it takes to be marked dead.
func (c *chaos) freezeNode(ctx context.Context, n *node) error {
	over := c.during("freeze anywhere", n)
	n.freeze(true)
	n.signal(syscall.SIGSTOP)
	pause(ctx, c.draw(c.frozen))
	n.signal(syscall.SIGCONT)
	n.freeze(false)
	over()
	return nil
}

// suspendNode halts a node like freezeNode, and its monotonic clock stands still meanwhile.
func (c *chaos) suspendNode(ctx context.Context, n *node) error {
	from, process, over := time.Now(), n.number(), c.during("freeze by suspension", n)
	n.freeze(true)
	n.signal(syscall.SIGSTOP)
	pause(ctx, c.draw(c.frozen))
	var err error
	if n.number() == process { // not a process that another fault has started meanwhile
		err = n.suspended(time.Since(from)) // before it runs again
	}
	n.signal(syscall.SIGCONT)
	n.freeze(false)
	over()
	return err
}

// loseResponses cuts all nodes' connections at writes: before the database receives them, or after
// it has committed them.
func (c *chaos) loseResponses(ctx context.Context, _ *node) error {
	from := time.Now()
	for _, n := range c.nodes {
		n.proxy.responses.Store(int32(2 + c.intN(3)))
		n.proxy.requests.Store(int32(c.intN(2)))
	}
	pause(ctx, 1500*time.Millisecond)
	for _, n := range c.nodes {
		n.proxy.responses.Store(0)
		n.proxy.requests.Store(0)
	}
	c.note("responses of commits lost", "", from, time.Now())
	return nil
}

// slowNode makes all of a node's statements slow.
func (c *chaos) slowNode(ctx context.Context, n *node) error {
	from := time.Now()
	n.proxy.delay.Store(int64(c.between(50*time.Millisecond, 250*time.Millisecond)))
	pause(ctx, 2*time.Second)
	n.proxy.delay.Store(0)
	c.note("slow network", n.name, from, time.Now())
	return nil
}

// shiftClock shifts a node's clock and, after a while, shifts it back.
func (c *chaos) shiftClock(ctx context.Context, n *node) error {
	shifts := []time.Duration{10 * time.Minute, time.Hour, 17 * time.Second, 5 * 365 * 24 * time.Hour}
	by := shifts[c.intN(len(shifts))]
	if c.intN(2) == 0 {
		by = -by
	}
	for _, shift := range []time.Duration{by, -by} {
		from := time.Now()
		if err := n.shift(shift); err != nil {
			return err
		}
		pause(ctx, c.between(500*time.Millisecond, 1500*time.Millisecond))
		c.note("clock jumps", n.name, from, time.Now())
	}
	return nil
}

// restartDatabase stops the database, cleanly or not, and starts it again.
func (c *chaos) restartDatabase(ctx context.Context, _ *node) error {
	from, kind, by := time.Now(), "database restart, fast", syscall.SIGINT
	if c.intN(2) == 0 {
		kind, by = "database restart, immediate", syscall.SIGQUIT
	}
	err := c.database.restart(ctx, by, c.between(0, time.Second))
	c.note(kind, "", from, time.Now())
	return err
}

// killBackend kills one process of the database, which then restarts the others.
func (c *chaos) killBackend(ctx context.Context, _ *node) error {
	from := time.Now()
	pid, err := c.database.count(ctx, databaseName,
		"SELECT pid FROM pg_stat_activity WHERE application_name = 'carillon' ORDER BY random() LIMIT 1")
	if err != nil || pid == 0 {
		return err
	}
	if err := syscall.Kill(int(pid), syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	for c.database.Execute(ctx, "postgres", "SELECT 1") != nil && ctx.Err() == nil {
		pause(ctx, 50*time.Millisecond)
	}
	c.note("database backend killed", "", from, time.Now())
	return nil
}

// fillDisk fills the database's disk for a while.
func (c *chaos) fillDisk(ctx context.Context, _ *node) error {
	if !c.database.small {
		return nil // the disk cannot be filled without a separate mount
	}
	from := time.Now()
	empty, err := c.database.fill()
	if err != nil {
		return err
	}
	pause(ctx, c.between(time.Second, 3*time.Second))
	err = empty(context.WithoutCancel(ctx))
	c.note("disk full", "", from, time.Now())
	return err
}

// drainNode lets a node drain. The next kill starts it again.
func (c *chaos) drainNode(ctx context.Context, n *node) error {
	over := c.during("SIGTERM", n)
	n.signal(syscall.SIGTERM)
	over()
	return nil
}

// watchMachine records when this machine itself stalled, with all nodes.
func (c *chaos) watchMachine(ctx context.Context) {
	const heartbeat = 50 * time.Millisecond
	for ctx.Err() == nil {
		before := time.Now()
		pause(ctx, heartbeat)
		if took := time.Since(before); took > 10*heartbeat {
			c.note(history.MachineStalled, "", before, time.Now())
		}
	}
}
