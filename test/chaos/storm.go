package main

import (
	"context"
	"sync"
	"syscall"
	"time"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// A storm adds this many nodes at once.
const minStorm, maxStorm = 4, 7

// storm starts several more nodes at once, with the names of the three, and ends them one by one,
// by SIGTERM or SIGKILL, some during their start. Meanwhile the three live and die as usual, so the
// number of nodes may go from one to ten and back within seconds.
func (c *chaos) storm(ctx context.Context, _ *node) error {
	var storming sync.WaitGroup
	defer storming.Wait()
	for i := range minStorm + c.intN(maxStorm-minStorm+1) {
		n, err := c.nodes[i%len(c.nodes)].sibling(ctx)
		if err != nil {
			return err
		}
		storming.Go(func() {
			if err := c.comeAndGo(ctx, n); err != nil {
				c.trouble(err)
			}
		})
	}
	return nil
}

// comeAndGo lets a node live for a while.
func (c *chaos) comeAndGo(ctx context.Context, n *node) error {
	if err := n.start(""); err != nil {
		return err
	}
	pause(ctx, c.between(0, c.life))
	if c.intN(2) == 0 && ctx.Err() == nil {
		c.tellToEnd(n, history.Storm)
	} else {
		c.killNow(n, "SIGKILL in a storm")
	}
	return nil
}

// killNow kills a node. A node that has already ended by itself is a problem.
func (c *chaos) killNow(n *node, kind string) {
	f := history.Fault{Kind: kind, Node: n.name, Process: n.number(), From: time.Now()}
	n.signal(syscall.SIGKILL)
	<-n.end()
	if n.exec.ProcessState.Exited() {
		f.Problem = "it had ended with " + n.exec.ProcessState.String()
	}
	f.To = time.Now()
	c.noteFault(f)
}

// deploy replaces the nodes one by one, like a deployment: a new node starts next to the old one,
// with its name, and once it is ready the old one drains. Then the deployment is rolled back: the
// next kill of an old node starts it again, and the new ones drain.
func (c *chaos) deploy(ctx context.Context, _ *node) error {
	var fresh []*node
	for _, old := range c.nodes {
		n, err := old.sibling(ctx)
		if err == nil {
			err = n.start("")
		}
		if err != nil {
			return err
		}
		fresh = append(fresh, n)
		starting, cancel := context.WithTimeout(ctx, c.life)
		if n.ready(starting) == nil {
			err = c.drainNode(ctx, old)
		}
		cancel()
		if err != nil {
			return err
		}
	}
	for _, n := range fresh {
		if ctx.Err() != nil {
			c.killNow(n, "SIGKILL in a deploy")
			continue
		}
		c.tellToEnd(n, history.Deploy)
		pause(ctx, c.draw(c.rest))
	}
	return nil
}
