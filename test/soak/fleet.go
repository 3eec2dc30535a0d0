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
	"time"
)

// fleet has the nodes of one database. The first process has one node, whose memory is measured,
// and the second has the others.
type fleet struct{ processes []*process }

// process is a process with nodes.
type process struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

// settling is the time that a new fleet needs: heartbeats until its nodes know each other, polls with their
// shares, and two rounds of the handler. New nodes do not know what is left, so each checks everything once,
// and here they all start at the same time. The lateness during that time is a separate figure.
func (o options) settling() time.Duration {
	if o.short {
		return 4 * time.Second
	}
	return 40 * time.Second
}

func (w *world) startFleet(ctx context.Context, d *database) (*fleet, error) {
	f := &fleet{}
	for _, config := range []nodesConfig{
		{Database: d.url, Nodes: 1, Labels: servedLabels(), Short: w.short},
		{Database: d.url, Nodes: w.nodes - 1, Short: w.short},
	} {
		p, err := startProcess(ctx, config)
		if err != nil {
			return nil, errors.Join(err, f.stop())
		}
		f.processes = append(f.processes, p)
	}
	return f, nil
}

func startProcess(ctx context.Context, config nodesConfig) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	p := &process{command: exec.CommandContext(ctx, program, asNodes)} //nolint:gosec // this program
	p.command.Env = append(os.Environ(), nodesVariable+"="+string(text))
	p.command.Stderr = os.Stderr
	if p.in, err = p.command.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	return p, p.command.Start()
}

// reports returns the report of each process.
func (f *fleet) reports() ([]nodesReport, error) {
	all := make([]nodesReport, len(f.processes))
	for i, p := range f.processes {
		if _, err := io.WriteString(p.in, "\n"); err != nil {
			return nil, fmt.Errorf("process with nodes: %w", err)
		}
		line, err := p.out.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, &all[i])
		}
		if err != nil {
			return nil, fmt.Errorf("process with nodes: %w", err)
		}
	}
	return all, nil
}

// stop drains the nodes.
func (f *fleet) stop() error {
	var problems []error
	for _, p := range f.processes {
		problems = append(problems, p.in.Close())
	}
	for _, p := range f.processes {
		problems = append(problems, p.command.Wait())
	}
	f.processes = nil
	return errors.Join(problems...)
}

// seen has the results of the turns of one fleet.
type seen struct {
	lateness, neighbour []float64 // milliseconds
	starting            []float64 // lateness while the fleet starts
	missing, delayed    int
	statements, fires   float64
	polls, polling      float64
	memory, circuits    float64
}

// seconds is the longest permitted delay of a healthy job by a broken one on its host. A request
// that has not arrived by then is missing.
const seconds = 15 * time.Second

// fireUncleaned runs each fleet for a turn while its nodes start to remove the expired data of all
// those years: jobs, triggers and runs. It reports the lateness of fires meanwhile, without a bar.
func (w *world) fireUncleaned(ctx context.Context) error {
	w.begun = time.Now()
	for _, d := range w.both() {
		if err := d.begin(ctx); err != nil {
			return err
		}
	}
	if w.short {
		return nil
	}
	all, err := w.runTurns(ctx, 1)
	if err == nil {
		w.figures.compare("lateness_uncleaned_p99", "ms", quantile(all[w.old].lateness, 0.99), quantile(all[w.young].lateness, 0.99))
	}
	return err
}

// runTurns runs the fleets of both databases in turns. If both ran at once, the old one would slow
// down the young one and hide its own cost.
func (w *world) runTurns(ctx context.Context, turns int) (map[*database]*seen, error) {
	all := map[*database]*seen{w.old: {}, w.young: {}}
	for range turns {
		for _, d := range w.both() {
			if err := w.runTurn(ctx, d, all[d]); err != nil {
				return nil, fmt.Errorf("fleet of the %s database: %w", d.name, err)
			}
		}
	}
	return all, nil
}

// runFleets measures the fleets of both databases.
func (w *world) runFleets(ctx context.Context) error {
	all, err := w.runTurns(ctx, w.turns)
	if err != nil {
		return err
	}
	old, young := all[w.old], all[w.young]
	f := &w.figures
	for _, share := range []struct {
		name string
		at   float64
	}{{"lateness_p50", 0.5}, {"lateness_p99", 0.99}, {"lateness_max", 1}} {
		f.compare(share.name, "ms", quantile(old.lateness, share.at), quantile(young.lateness, share.at))
	}
	f.compare("lateness_start_p99", "ms", quantile(old.starting, 0.99), quantile(young.starting, 0.99))
	f.compare("healthy_missing", "count", float64(old.missing), float64(young.missing))
	f.add("neighbour_missing", "count", float64(old.delayed))
	f.add("neighbour_lateness_p99", "ms", quantile(old.neighbour, 0.99))
	f.add("neighbour_lateness_max", "ms", quantile(old.neighbour, 1))
	f.compare("window_poll", "ms", 1000*old.polling/max(1, old.polls), 1000*young.polling/max(1, young.polls))
	f.compare("statements_per_attempt", "count", old.statements/max(1, old.fires), young.statements/max(1, young.fires))
	f.compare("node_memory", "MiB", old.memory, young.memory)
	f.compare("circuits_per_node", "count", old.circuits, young.circuits)
	return nil
}

// runTurn runs the fleet of a database for one turn.
func (w *world) runTurn(ctx context.Context, d *database, all *seen) (err error) {
	w.targets.forget()
	if err := w.setDue(ctx, d); err != nil {
		return err
	}
	f, err := w.startFleet(ctx, d)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	from := time.Now().Add(w.settling()).Truncate(time.Second) // after soon, when the fires begin
	until := from.Add(w.turn)
	if err := pause(ctx, time.Until(from)); err != nil {
		return err
	}
	before, err := f.reports()
	if err != nil {
		return err
	}
	if err := pause(ctx, time.Until(until)); err != nil {
		return err
	}
	after, err := f.reports()
	if err != nil {
		return err
	}
	wanted := w.rate * int(w.turn/time.Second)
	late := w.targets.lateness(healthy, from, until)
	for end := until.Add(seconds); len(late) < wanted && time.Now().Before(end); late = w.targets.lateness(healthy, from, until) {
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	all.lateness = append(all.lateness, late...)
	all.starting = append(all.starting, w.targets.lateness(healthy, from.Add(-w.settling()), from)...)
	all.missing += wanted - len(late)
	all.neighbour = append(all.neighbour, w.targets.lateness(neighbour, from, until)...)
	if d == w.old {
		due := until.Add(-min(seconds, w.turn/2).Truncate(time.Second))
		all.delayed += int(neighbourJobs*due.Sub(from)/beat) - len(w.targets.lateness(neighbour, from, due))
	}
	for i := range after {
		all.statements += after[i].Statements - before[i].Statements
		all.fires += after[i].Fires - before[i].Fires
		all.polls += after[i].Polls - before[i].Polls
		all.polling += after[i].Polling - before[i].Polling
		all.circuits = max(all.circuits, after[i].Circuits)
	}
	all.memory = max(all.memory, after[0].RSS)
	fmt.Fprintf(w.log, "  %s: %d fires of %s, p99 %.1f ms; %d runs held; %.0f MiB\n", d.name, len(late), healthy,
		quantile(late, 0.99), int(after[0].Held+after[1].Held), after[0].RSS)
	return nil
}

// pause waits, or returns the error of ctx.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
