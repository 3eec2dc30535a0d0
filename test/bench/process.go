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
	"strconv"
	"strings"
	"syscall"
)

// asNode is the command that makes this program a node process of a benchmark.
const asNode = "as-node"

// runAsNode is a node process of a benchmark. Its calls do nothing. For each line that it reads from in, it
// writes one line of JSON: what it did since the line before. It ends when in does.
func runAsNode(ctx context.Context, database string, in io.Reader, out io.Writer) error {
	n, err := startNode(ctx, nodeOptions{database: database, latency: true})
	if err != nil {
		return err
	}
	defer func() { _ = n.stop() }() // a second call says the same
	var before totals
	cpu := processCPU()
	for lines := bufio.NewScanner(in); lines.Scan(); {
		now, err := n.totals()
		if err != nil {
			return err
		}
		used := processCPU()
		r := report{
			Won: now.won - before.won, Lost: now.lost - before.lost, Statements: now.statements - before.statements,
			Polls: now.polls - before.polls, Polling: now.polling - before.polling, CPU: used - cpu, RSS: residentMiB(),
			Latencies: n.takeLatencies(),
		}
		before, cpu = now, used
		if err := json.NewEncoder(out).Encode(r); err != nil {
			return err
		}
	}
	return n.stop()
}

// report is what a node process did.
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
	pages, _ := strconv.ParseFloat(fields[1], 64) // 0 if the kernel writes something else
	return pages * float64(os.Getpagesize()) / (1 << 20)
}

// process is a node in a process of its own.
type process struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

func (b *bench) startProcess(ctx context.Context) (*process, error) {
	p := &process{command: exec.CommandContext(ctx, b.Program, asNode)}
	// Not as an argument, which everybody on this machine could read.
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

// report returns what the node did since the last call.
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

// kill ends the node as kill -9 does.
func (p *process) kill() error {
	err := p.command.Process.Signal(syscall.SIGKILL)
	_ = p.command.Wait() // says that it was killed
	return err
}
