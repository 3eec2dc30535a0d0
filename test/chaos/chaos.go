package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-dev/carillon/test/chaos/history"
	"github.com/carillon-dev/carillon/test/program"
)

// chaos is one run.
type chaos struct {
	options
	pace
	database *database
	receiver *receiver
	nodes    []*node
	// elsewhere is the node of another installation; nil if no app moves.
	elsewhere *node
	mover     *mover
	spawn     program.Spawner
	started   atomic.Int64 // number of started node processes
	faults    *history.Log
	declared  *declarer
	// poisonings is nil if no rows are poisoned.
	poisonings *history.Log

	mu       sync.Mutex
	rand     *rand.Rand
	troubles []error
}

// nodeCount is the number of nodes.
const nodeCount = 3

func newChaos(ctx context.Context, o options) (c *chaos, err error) {
	c = &chaos{options: o, pace: quick(), spawn: program.NewSpawner(), rand: rand.New(rand.NewPCG(o.seed, 1))}
	if o.production {
		c.pace = production()
	}
	if least := c.settle + 5*time.Second; time.Duration(o.seconds)*time.Second < least {
		return nil, fmt.Errorf("%d seconds are too few: after the last fault a run takes %s to settle", o.seconds, c.settle)
	}
	if c.faults, err = history.Create(o.dir, history.Faults, false); err != nil {
		return nil, err
	}
	near, far := "127.0.0.1:0", "127.0.0.1:0"
	if o.separate {
		near, far = nearAddress+":0", farAddress+":0"
	}
	if c.receiver, err = startReceiver(ctx, o.dir, near, far); err != nil {
		return nil, err
	}
	if c.database, err = startDatabase(ctx, o.dir); err != nil {
		return nil, err
	}
	for i := range nodeCount {
		n, err := newNode(ctx, c, i+1)
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.nodes = append(c.nodes, n)
		c.receiver.caller.hosts = append(c.receiver.caller.hosts, n.listen)
	}
	return c, nil
}

func (c *chaos) close() error {
	var faults []error
	for _, n := range append(slices.Clone(c.nodes), c.elsewhere) {
		if n != nil {
			faults = append(faults, n.destroy())
		}
	}
	c.receiver.close()
	return errors.Join(append(faults, c.database.remove(), c.faults.Close())...)
}

// prepare starts the nodes over a new database, and the declarer of jobs.
func (c *chaos) prepare(ctx context.Context) error {
	token, err := c.token(ctx, databaseName, "chaos", "read,run,write,metrics,export,import,admin")
	if err != nil {
		return err
	}
	if err := c.database.watch(ctx); err != nil {
		return err
	}
	if err := c.age(ctx); err != nil {
		return err
	}
	for _, n := range c.nodes {
		if err := n.start(""); err != nil {
			return err
		}
	}
	for _, n := range c.nodes {
		if err := c.await(ctx, n); err != nil {
			return err
		}
	}
	c.declared, err = newDeclarer(c, token)
	return err
}

// run injects faults until it is time to settle.
func (c *chaos) run(ctx context.Context) error {
	begun := time.Now()
	if err := c.migrate(ctx); err != nil {
		return err
	}
	if err := c.prepare(ctx); err != nil {
		return err
	}
	if err := c.declared.standing(ctx); err != nil {
		return err
	}
	if err := c.declared.backfill(ctx); err != nil {
		return err
	}
	if err := c.prepareBesides(ctx); err != nil {
		return err
	}
	faulty, end := context.WithDeadline(ctx, begun.Add(time.Duration(c.seconds)*time.Second-c.settle))
	defer end()
	var working sync.WaitGroup
	for i, n := range c.nodes {
		working.Go(func() { c.kill(faulty, n, i) })
	}
	working.Go(func() { c.injectFaults(faulty) })
	if c.separate && c.wants("target") {
		working.Go(func() { c.cutTargets(faulty) })
	}
	working.Go(func() { c.watchMachine(faulty) })
	working.Go(func() { c.holdSnapshot(faulty) })
	// A change without a response is retried for half a minute. It needs the nodes that heal
	// starts, so only heal waits for it.
	var declaring sync.WaitGroup
	defer declaring.Wait()
	declaring.Go(func() { c.declared.change(faulty) })
	if c.poisonings != nil {
		declaring.Go(func() { c.poisonRows(faulty) })
	}
	if c.mover != nil {
		declaring.Go(func() { c.mover.moveApps(faulty) })
	}
	declaring.Go(func() { c.declared.replay(faulty) })
	working.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := c.heal(ctx, declaring.Wait); err != nil {
		return err
	}
	return errors.Join(c.troubles...)
}

// prepareBesides prepares the faults with their own jobs.
func (c *chaos) prepareBesides(ctx context.Context) (err error) {
	if c.wants("poison") {
		if c.poisonings, err = history.Create(c.dir, history.Poisonings, false); err != nil {
			return err
		}
		if err := c.declarePoisoned(ctx); err != nil {
			return err
		}
	}
	if !c.wants("import") {
		return nil
	}
	if c.mover, err = newMover(ctx, c); err != nil {
		return err
	}
	return c.declareMoving(ctx)
}

// wants reports whether a fault is injected next to the ones that take turns.
func (c *chaos) wants(fault string) bool {
	return slices.Contains(listed(c.options.faults, besides), fault)
}

// migrate kills a node several times in the middle of its first migration, before one can finish.
func (c *chaos) migrate(ctx context.Context) error {
	n := c.nodes[0]
	for i := range 3 {
		if err := n.start(fmt.Sprintf("K16:kill,within=%dms", 20+60*i)); err != nil {
			return err
		}
		select {
		case <-n.end():
			c.during("kill K16", n)()
		case <-time.After(10 * time.Second):
			return errors.New("K16 was not reached")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// await waits until a node is ready, at most as long as the rest of a killed migration may take.
func (c *chaos) await(ctx context.Context, n *node) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return n.ready(ctx)
}

// token creates a token for the API. It also migrates.
func (c *chaos) token(ctx context.Context, database, name, scopes string) (string, error) {
	command := exec.CommandContext(ctx, c.program, "token", "create", "--name", name, "--scope", scopes)
	command.Env = append(os.Environ(), "CARILLON_DATABASE="+c.database.URL(database))
	var out, faults bytes.Buffer
	command.Stdout, command.Stderr = &out, &faults
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("token create: %w: %s", err, faults.String())
	}
	return strings.TrimSpace(out.String()), nil
}

// heal ends all faults, gives the nodes time to recover, and ends the definitions and the runs in
// flight. Then all nodes drain. It waits for work that needs the nodes that it starts.
func (c *chaos) heal(ctx context.Context, waits ...func()) error {
	for _, n := range c.nodes {
		n.proxy.heal()
		if err := n.shift(0); err != nil {
			return err
		}
		// The node may still have a failpoint.
		if err := c.renew(n, ""); err != nil {
			return err
		}
	}
	for _, n := range c.nodes {
		if err := c.await(ctx, n); err != nil {
			c.trouble(err)
		}
	}
	if err := c.letLook(ctx); err != nil {
		c.trouble(err)
	}
	for _, wait := range waits {
		wait()
	}
	if err := c.mendAll(ctx); err != nil {
		return err
	}
	pause(ctx, c.recovery+1300*time.Millisecond)
	c.declared.backfilled(ctx)
	if err := c.removePoisoned(ctx); err != nil {
		return err
	}
	if c.mover != nil {
		if err := c.mover.settleMoved(ctx); err != nil {
			return err
		}
	}
	if err := c.declared.end(ctx); err != nil {
		return err
	}
	c.receiver.hurry()
	c.awaitNone(ctx, `SELECT (SELECT count(*) FROM live_runs) + (SELECT count(*) FROM claims)
		+ (SELECT count(*) FROM pending_ends) + (SELECT count(*) FROM backfills WHERE ended_at IS NULL)`)
	if err := c.verify(ctx); err != nil {
		return err
	}
	for _, n := range append(slices.Clone(c.nodes), c.elsewhere) {
		if n == nil {
			continue
		}
		if err := n.terminate(c.drain + 7*time.Second); err != nil {
			c.trouble(err)
		}
	}
	return nil
}

// awaitNone waits until a statement counts 0, at most as long as a run may take to settle.
func (c *chaos) awaitNone(ctx context.Context, statement string) {
	for patience := time.Now().Add(c.settle); time.Now().Before(patience); {
		if left, err := c.database.count(ctx, databaseName, statement); err == nil && left == 0 {
			return
		}
		pause(ctx, 250*time.Millisecond)
	}
}

// trouble records an error that the checker cannot see and that fails the run.
func (c *chaos) trouble(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.troubles = append(c.troubles, err)
}

// note records a fault of all processes with a name, or of the whole system.
func (c *chaos) note(kind, node string, from, to time.Time) {
	c.noteFault(history.Fault{Kind: kind, Node: node, From: from, To: to})
}

// during begins a fault of a node's current process. It returns a function that records the fault at its end.
func (c *chaos) during(kind string, n *node) (over func()) {
	fault := history.Fault{Kind: kind, Node: n.name, Process: n.number(), From: time.Now()}
	return func() {
		fault.To = time.Now()
		c.noteFault(fault)
	}
}

func (c *chaos) noteFault(f history.Fault) {
	if err := c.faults.Append(f); err != nil {
		c.trouble(err)
	}
}

// between returns a random duration.
func (c *chaos) between(low, high time.Duration) time.Duration {
	return low + time.Duration(c.intN(int(high-low)))
}

// intN returns a random number below n.
func (c *chaos) intN(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rand.IntN(n)
}

// pause waits, or returns early when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
