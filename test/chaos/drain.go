package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// mostDrained is how much longer than its drain timeout a node may take to end, whatever else
// happens to it: the database may be away, or it may be frozen.
const mostDrained = 30 * time.Second

// drainAt lets a node work for a while and then end in good order, with what it has in flight. The
// checker judges how long that took, and what became of what the node held.
func (c *chaos) drainAt(ctx context.Context, n *node) {
	if err := c.renew(n, ""); err != nil {
		c.trouble(err)
		return
	}
	starting, cancel := context.WithTimeout(ctx, c.life)
	defer cancel()
	if n.ready(starting) != nil {
		return // the database is away, or there is no more time
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

// tellToEnd tells a node to end in good order, and waits until it has.
func (c *chaos) tellToEnd(n *node, kind string) {
	f := history.Fault{Kind: kind, Node: n.name, Process: n.number(), From: time.Now()}
	n.signal(syscall.SIGTERM)
	select {
	case <-n.end():
		status, _ := n.exec.ProcessState.Sys().(syscall.WaitStatus)
		switch {
		case status.Signaled() && status.Signal() == syscall.SIGTERM:
			// Another had told it before, upon which this one ends it at once; or it had only just begun.
			f.Kind = "SIGTERM that ends at once"
		case status.ExitStatus() != 0:
			f.Wrong = "it ended with " + n.exec.ProcessState.String()
		}
	case <-time.After(c.drain + mostDrained):
		f.Wrong = fmt.Sprintf("it had not ended after %s", c.drain+mostDrained)
	}
	f.To = time.Now()
	c.noteFault(f)
}
