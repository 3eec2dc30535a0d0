package main

import (
	"context"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// partitionNode cuts a node off from the database, by rules of the kernel or by the proxy, with or
// without errors.
func (c *chaos) partitionNode(ctx context.Context, n *node) error {
	from, long := time.Now(), c.between(time.Second, 4500*time.Millisecond)
	if c.separate {
		how := cuts[c.intN(len(cuts))]
		if err := c.cutFor(ctx, n, how, n.proxy.address(), long); err != nil {
			return err
		}
		c.note("network to the database: "+how.name, n.name, from, time.Now())
		return nil
	}
	silently := c.intN(2) == 0
	n.proxy.partition(silently)
	pause(ctx, long)
	n.proxy.heal()
	kind := "partition, connections reset"
	if silently {
		kind = "partition, silent"
	}
	c.note(kind, n.name, from, time.Now())
	return nil
}

// cutFor makes the kernel cut a node off from an address for a while.
func (c *chaos) cutFor(ctx context.Context, n *node, how cut, address string, long time.Duration) error {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	n.network.Lock() // rules replace each other
	defer n.network.Unlock()
	after := context.WithoutCancel(ctx)
	if err := filter(after, n.name, how, host, port); err != nil {
		return err
	}
	pause(ctx, long)
	return unfilter(after, n.name)
}

// flapNode cuts a node off repeatedly.
func (c *chaos) flapNode(ctx context.Context, n *node) error {
	from, kind := time.Now(), "partition, flapping"
	for range 6 {
		long := c.between(50*time.Millisecond, 300*time.Millisecond)
		if c.separate {
			kind = "network to the database: flapping"
			if err := c.cutFor(ctx, n, cuts[c.intN(2)], n.proxy.address(), long); err != nil {
				return err
			}
		} else {
			n.proxy.partition(c.intN(2) == 0)
			pause(ctx, long)
			n.proxy.heal()
		}
		pause(ctx, c.between(50*time.Millisecond, 300*time.Millisecond))
	}
	c.note(kind, n.name, from, time.Now())
	return nil
}

// cutTargets cuts one node after the other off from one of the receivers, during other faults. Only
// jobs of that receiver may suffer from it.
func (c *chaos) cutTargets(ctx context.Context) {
	far, err := url.Parse(c.receiver.far)
	for err == nil && ctx.Err() == nil {
		pause(ctx, c.between(time.Second, 4*time.Second))
		n, how, from := c.nodes[c.intN(len(c.nodes))], cuts[c.intN(len(cuts))], time.Now()
		if err = c.cutFor(ctx, n, how, far.Host, c.between(time.Second, 8*time.Second)); err == nil {
			c.noteFault(history.Fault{Kind: "network to a target: " + how.name, Node: n.name, Target: true, From: from, To: time.Now()})
		}
	}
	if err != nil {
		c.trouble(err)
	}
}
