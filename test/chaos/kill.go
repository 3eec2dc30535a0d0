package main

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"
)

// points are the failpoints at which nodes are killed or stopped, with the largest number of the visit. A
// point that is passed often gets a later visit, so that the node has done some work before it dies. A
// stopped node is not killed; it wakes when others have taken its runs. A drain counts as a point.
var points = []struct {
	name string
	most int
}{
	{"K1", 12}, {"K2", 40}, {"K3", 40}, {"stop K7", 25}, {"K4", 40}, {"K5", 40}, {"K6", 60}, {"K7", 60},
	{"stop K5", 15}, {"drain", 1}, {"K8", 60}, {"K9", 60},
	{"K10", 40}, {"K11", 2}, {"stop K9", 25}, {"K12", 4}, {"K13", 4}, {"K14", 4}, {"stop K2", 15}, {"K15", 4},
	{"K16", 1}, {"K17", 2}, {"K18", 1}, {"K19", 3}, {"K20", 20}, {"K21", 20}, {"K22", 6}, {"K23", 2}, {"K24", 2}, {"K26", 10},
	{"K27", 10},
	{"drain", 1}, {"stop K8", 25}, {"stop K4", 15}, {"stop K12", 4}, {"stop K14", 4},
}

// kill starts and kills a node repeatedly, at one point after the other. Each node begins with
// another point.
func (c *chaos) kill(ctx context.Context, n *node, first int) {
	var names []string
	most := map[string]int{}
	for _, p := range points {
		if names, most[p.name] = append(names, p.name), p.most; p.most <= 12 {
			most[p.name] = min(p.most, c.seldom)
		}
	}
	names = listed(c.kills, names)
	if len(names) == 0 {
		return
	}
	for i := first * 9; ctx.Err() == nil; i++ {
		name := names[i%len(names)]
		if name == "drain" {
			c.drainAt(ctx, n)
			continue
		}
		nth := 1 + c.intN(most[name])
		if point, stops := strings.CutPrefix(name, "stop "); stops {
			c.stopAt(ctx, n, point, nth)
			continue
		}
		c.killAt(ctx, n, name, nth)
		pause(ctx, c.draw(c.rest))
	}
}

// renew ends the current process and starts one with a failpoint.
func (c *chaos) renew(n *node, failpoint string) error {
	c.stop(n)
	return n.start(failpoint)
}

// stop kills the current process if it still runs. Otherwise the process might die later at its
// failpoint, without a record.
func (c *chaos) stop(n *node) {
	select {
	case <-n.end():
	default:
		n.signal(syscall.SIGKILL)
		<-n.end()
		c.during("kill anywhere", n)()
	}
}

// killAt starts a node that dies at a point, and kills it if it does not.
func (c *chaos) killAt(ctx context.Context, n *node, point string, nth int) {
	if err := c.renew(n, fmt.Sprintf("%s:kill,nth=%d", point, nth)); err != nil {
		c.trouble(err)
		return
	}
	if point == "K18" {
		pause(ctx, c.between(500*time.Millisecond, 2*time.Second))
		n.signal(syscall.SIGTERM)
	}
	kind := "kill " + point
	for deadline := time.Now().Add(c.life); ; {
		select {
		case <-n.end():
			if !n.exec.ProcessState.Exited() {
				c.during(kind, n)()
				return
			}
			// For example, the database was unreachable at its start. A supervisor would start it again.
			c.during("start or drain ended", n)()
			return
		case <-ctx.Done():
			c.stop(n)
			return
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) && !n.isFrozen() {
			kind = "kill anywhere"
			n.signal(syscall.SIGKILL)
		}
	}
}

// stopAt starts a node that freezes at a point, and thaws it after it was marked dead.
func (c *chaos) stopAt(ctx context.Context, n *node, point string, nth int) {
	if err := c.renew(n, fmt.Sprintf("%s:stop,nth=%d", point, nth)); err != nil {
		c.trouble(err)
		return
	}
	for deadline := time.Now().Add(c.life); time.Now().Before(deadline); pause(ctx, 20*time.Millisecond) {
		if ctx.Err() != nil {
			c.stop(n)
			return
		}
		if !n.stopped() || n.isFrozen() {
			continue
		}
		over := c.during("freeze "+point, n)
		n.freeze(true)
		pause(ctx, c.draw(c.frozen))
		n.signal(syscall.SIGCONT)
		n.freeze(false)
		over()
		// It must continue normally.
		pause(ctx, time.Second)
		return
	}
}
