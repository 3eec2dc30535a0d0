package main

import (
	"context"
	"sync"
	"syscall"
	"time"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// A storm adds this many nodes at once to those that there are.
const leastStorm, mostStorm = 4, 7

// storm has several more nodes come at once, under the names of those that there are, and go one
// by one, told to end or killed at whatever they are by then, be it their start. The three live and die
// meanwhile as ever, so now and then some seconds lead from one node to ten and back.
func (c *chaos) storm(ctx context.Context, _ *node) error {
	var coming sync.WaitGroup
	defer coming.Wait()
	for i := range leastStorm + c.intN(mostStorm-leastStorm+1) {
		n, err := c.nodes[i%len(c.nodes)].beside(ctx)
		if err != nil {
			return err
		}
		coming.Go(func() {
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

// killNow kills a node, unless it has ended by itself, which nothing gives it a reason to.
func (c *chaos) killNow(n *node, kind string) {
	f := history.Fault{Kind: kind, Node: n.name, Process: n.number(), From: time.Now()}
	n.signal(syscall.SIGKILL)
	<-n.end()
	if n.exec.ProcessState.Exited() {
		f.Wrong = "it had ended with " + n.exec.ProcessState.String()
	}
	f.To = time.Now()
	c.noteFault(f)
}

// deploy replaces the nodes one by one, as a deployment does: a new one starts beside the old one,
// under its name, and once it is ready the old one is told to end. Who kills the old one starts it
// again; then the deployment is rolled back.
func (c *chaos) deploy(ctx context.Context, _ *node) error {
	var fresh []*node
	for _, old := range c.nodes {
		n, err := old.beside(ctx)
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
		c.tellToEnd(n, history.Rollback)
		pause(ctx, c.draw(c.rest))
	}
	return nil
}
