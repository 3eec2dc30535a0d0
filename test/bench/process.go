package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"
)

// asNode is the command that makes this program a node process of a benchmark.
const asNode = "as-node"

// runAsNode is a process of a benchmark with some nodes whose calls do nothing. For each line that it reads
// from in, it writes a line of JSON: the work since the previous line. It ends when in ends. The nodes share
// one store, so that each further node needs only one more connection, to listen.
func runAsNode(ctx context.Context, database string, count int, in io.Reader, out io.Writer) error {
	first, err := startNode(ctx, nodeOptions{database: database, latency: true})
	if err != nil {
		return err
	}
	all := nodes{first}
	defer func() { _ = all.stop() }() // a second call returns the same
	for len(all) < count {
		n, err := startNode(ctx, nodeOptions{database: database, latency: true, shares: first})
		if err != nil {
			return err
		}
		all = append(all, n)
	}
	var before totals
	cpu := processCPU()
	for lines := bufio.NewScanner(in); lines.Scan(); {
		now, err := all.totals()
		if err != nil {
			return err
		}
		used := processCPU()
		r := report{
			Won: now.won - before.won, Lost: now.lost - before.lost, Statements: now.statements - before.statements,
			Polls: now.polls - before.polls, Polling: now.polling - before.polling, CPU: used - cpu, RSS: residentMiB(),
			Latencies: all.takeLatencies(),
		}
		before, cpu = now, used
		if err := json.NewEncoder(out).Encode(r); err != nil {
			return err
		}
	}
	return all.stop()
}

// nodes are the nodes of one process; the first owns the store.
type nodes []*node

func (all nodes) totals() (sum totals, err error) {
	for _, n := range all {
		t, err := n.totals()
		if err != nil {
			return sum, err
		}
		sum = totals{sum.statements + t.statements, sum.won + t.won, sum.lost + t.lost, sum.polls + t.polls, sum.polling + t.polling}
	}
	return sum, nil
}

func (all nodes) takeLatencies() (taken latencies) {
	for _, n := range all {
		taken = append(taken, n.takeLatencies()...)
	}
	slices.Sort(taken)
	return taken
}

// stop stops all nodes at once, and then the store of the first.
func (all nodes) stop() error {
	group := errgroup.Group{}
	for _, n := range all[1:] {
		group.Go(n.stop)
	}
	return errors.Join(group.Wait(), all[0].stop())
}

// report is the work of a node process.
type report struct {
	Won, Lost, Statements, Polls, Polling, CPU, RSS float64
	Latencies                                       latencies
}

// residentMiB returns the memory of this process, or 0 if the kernel does not report it.
func residentMiB() float64 {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(statm))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseFloat(fields[1], 64) // 0 for an unexpected format
	return pages * float64(os.Getpagesize()) / (1 << 20)
}

// process is a node in a separate process.
type process struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

func (b *bench) startProcess(ctx context.Context, count int) (*process, error) {
	p := &process{command: exec.CommandContext(ctx, b.Program, asNode, "--nodes="+strconv.Itoa(count))}
	// Not as an argument, which every user of this machine could read.
	p.command.Env = append(os.Environ(), "CARILLON_DATABASE="+b.database)
	p.command.Stderr = os.Stderr
	in, err := p.command.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.in, p.out = in, bufio.NewReader(out)
	return p, p.command.Start()
}

// report returns the node's work since the last call.
func (p *process) report() (r report, err error) {
	if _, err := io.WriteString(p.in, "\n"); err != nil {
		return r, fmt.Errorf("node process: %w", err)
	}
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return r, fmt.Errorf("node process: %w", err)
	}
	return r, json.Unmarshal(line, &r)
}

// end lets the node drain.
func (p *process) end() error { return errors.Join(p.in.Close(), p.command.Wait()) }

// kill ends the node like kill -9.
func (p *process) kill() error {
	err := p.command.Process.Signal(syscall.SIGKILL)
	_ = p.command.Wait() // its error reports the kill
	return err
}
