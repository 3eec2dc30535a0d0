package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// maxDrainOverrun is how much longer than its drain timeout a node may take during other faults:
// the database may be unreachable, or the node frozen.
const maxDrainOverrun = 30 * time.Second

// drainAt lets a node work for a while and then drain with runs in flight. The checker judges the
// duration, and the outcome of these runs.
func (c *chaos) drainAt(ctx context.Context, n *node) {
	if err := c.renew(n, ""); err != nil {
		c.trouble(err)
		return
	}
	starting, cancel := context.WithTimeout(ctx, c.life)
	defer cancel()
	if n.ready(starting) != nil {
		return // the database is unreachable, or time is up
	}
	select {
	case <-n.end():
		return
	case <-ctx.Done():
		return
	case <-time.After(c.between(c.life/5, c.life/2)):
	}
	c.tellToEnd(n, history.Drain)
}

// tellToEnd makes a node drain, and waits until it has ended.
func (c *chaos) tellToEnd(n *node, kind string) {
	f := history.Fault{Kind: kind, Node: n.name, Process: n.number(), From: time.Now()}
	n.signal(syscall.SIGTERM)
	select {
	case <-n.end():
		status, _ := n.exec.ProcessState.Sys().(syscall.WaitStatus)
		switch {
		case status.Signaled() && status.Signal() == syscall.SIGTERM:
			// It was the second signal, which ends a node at once, or the node had only just started.
			f.Kind = "second SIGTERM"
		case status.ExitStatus() != 0:
			f.Problem = "it ended with " + n.exec.ProcessState.String()
		}
	case <-time.After(c.drain + maxDrainOverrun):
		f.Problem = fmt.Sprintf("it had not ended after %s", c.drain+maxDrainOverrun)
	}
	f.To = time.Now()
	c.noteFault(f)
}
