package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/carillon-dev/carillon/test/chaos/history"
	"github.com/carillon-dev/carillon/test/freeport"
	"github.com/carillon-dev/carillon/test/program"
)

// node is one of the three nodes, through all its processes, or a temporary additional one.
type node struct {
	name    string
	command []string // its command line
	env     []string
	listen  string
	clock   string // file with the shift of its clock
	log     *os.File
	proxy   *proxy
	spawn   program.Spawner
	started *atomic.Int64 // number of started processes of all nodes
	network sync.Mutex    // guards the rules in its network

	mu                  sync.Mutex
	exec                *exec.Cmd
	process             int           // its number
	exited              chan struct{} // closed when the current process has ended
	frozen              bool
	shifted, stoodStill time.Duration // its clocks
}

func newNode(ctx context.Context, c *chaos, i int) (*node, error) {
	name := fmt.Sprintf("n%d", i)
	if c.separate {
		return assemble(ctx, c, seat{name: name, command: []string{"ip", "netns", "exec", name}, listen: nodeAddress(i) + ":8080",
			hub: hubAddress(i), database: databaseName})
	}
	listen, err := freeport.Address(ctx)
	if err != nil {
		return nil, err
	}
	return assemble(ctx, c, seat{name: name, listen: listen, hub: "127.0.0.1", database: databaseName})
}

// seat is a node's place: the command for its network, its address, and the address of its proxy to the database.
type seat struct {
	name, listen, hub, database string
	command                     []string
}

// assemble makes a node without starting it.
func assemble(ctx context.Context, c *chaos, at seat) (*node, error) {
	p, err := startProxy(ctx, at.hub, c.database.address())
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(c.dir, at.name+".log"))
	if err != nil {
		return nil, err
	}
	n := &node{name: at.name, listen: at.listen, log: log, proxy: p, spawn: c.spawn, started: &c.started,
		clock: filepath.Join(c.dir, at.name+".clock")}
	egress := "--egress-private=10.91.0.0/16"
	if at.command == nil { // receivers are on its own machine
		egress = "--egress-loopback"
	}
	n.command = slices.Concat(at.command, []string{c.program, "serve", egress, "--callback-url=" + callbackURL}, c.settings, c.args)
	n.env = append(os.Environ(),
		"CARILLON_DATABASE=postgres://postgres@"+p.address()+"/"+at.database+"?sslmode=disable",
		"CARILLON_LISTEN="+at.listen, "CARILLON_NODE_NAME="+at.name, "CHAOS_CLOCK="+n.clock)
	return n, nil
}

// sibling returns another node with the same name, network, proxy and clock, as in a deployment
// that starts the new node before it ends the old one.
func (n *node) sibling(ctx context.Context) (*node, error) {
	free, err := freeport.Address(ctx)
	if err != nil {
		return nil, err
	}
	host, _, _ := strings.Cut(n.listen, ":")
	_, port, _ := strings.Cut(free, ":")
	listen := host + ":" + port // in another network its ports are free anyway
	return &node{
		name: n.name, command: n.command, env: append(slices.Clip(n.env), "CARILLON_LISTEN="+listen), listen: listen,
		clock: n.clock, log: n.log, proxy: n.proxy, spawn: n.spawn, started: n.started,
	}, nil
}

// start starts a new process with these failpoints.
func (n *node) start(failpoints string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	command := exec.Command(n.command[0], n.command[1:]...) //nolint:noctx // the test ends it by signals
	process := int(n.started.Add(1))
	command.Env = append(slices.Clip(n.env), "CHAOS="+failpoints, fmt.Sprintf("CARILLON_NODE_LABELS=%s=%d", history.ProcessLabel, process))
	command.Stdout, command.Stderr = n.log, n.log
	if err := n.spawn.Start(command); err != nil {
		return err
	}
	exited := make(chan struct{})
	n.exec, n.process, n.exited, n.frozen = command, process, exited, false
	go func() {
		_ = command.Wait() // its state has the outcome
		close(exited)
	}()
	return nil
}

// end returns a channel that is closed when the current process has ended.
func (n *node) end() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.exited
}

// number returns the number of the current process.
func (n *node) number() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.process
}

func (n *node) signal(s syscall.Signal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.exec != nil {
		_ = n.exec.Process.Signal(s)
	}
}

// stopped reports whether SIGSTOP has halted the process.
func (n *node) stopped() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.exec.Process.Pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "T")
}

// freeze records that the node is frozen, and that its freezer will thaw it.
func (n *node) freeze(frozen bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.frozen = frozen
}

func (n *node) isFrozen() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.frozen
}

// shift shifts the node's clock, for this and later processes.
func (n *node) shift(by time.Duration) error {
	n.mu.Lock()
	n.shifted = by
	n.mu.Unlock()
	return n.setClocks()
}

// suspended holds the node's monotonic clock back for some more time, as if the machine had been
// suspended.
func (n *node) suspended(more time.Duration) error {
	n.mu.Lock()
	n.stoodStill += more
	n.mu.Unlock()
	return n.setClocks()
}

func (n *node) setClocks() error {
	n.mu.Lock()
	text := n.shifted.String() + "\n" + n.stoodStill.String()
	n.mu.Unlock()
	err := os.WriteFile(n.clock, []byte(text), 0o600)
	n.signal(syscall.SIGUSR2)
	return err
}

// ready waits until the node reports that it can dispatch.
func (n *node) ready(ctx context.Context) error {
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.listen+"/readyz", nil)
		if err != nil {
			return err
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("node %s is not ready: %w", n.name, ctx.Err())
		case <-n.end():
			return fmt.Errorf("node %s ended: %s", n.name, n.exec.ProcessState)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// terminate makes the node drain, and waits until it has ended.
func (n *node) terminate(atMost time.Duration) error {
	n.signal(syscall.SIGTERM)
	select {
	case <-n.end():
	case <-time.After(atMost):
		return fmt.Errorf("node %s did not end within %s of SIGTERM", n.name, atMost)
	}
	if code := n.exec.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("node %s ended with %s after SIGTERM", n.name, n.exec.ProcessState)
	}
	return nil
}

// destroy ends the node.
func (n *node) destroy() error {
	n.proxy.close()
	if n.exec != nil {
		n.signal(syscall.SIGKILL)
		<-n.end()
	}
	return errors.Join(n.log.Close())
}
