// Command soak creates in minutes the data of years, and checks that a node works with them as in a young
// database: a million triggers, a year of history, deleted and disabled objects, labels that no node has,
// neighbours with targets that hang or fail, an open snapshot, and a fleet of nodes.
//
// It runs two databases on its own PostgreSQL, the old one and a young one, and takes each figure from both,
// in turns. It prints one line of JSON per figure, and a sentence for each missed bar; then it exits with 1.
//
// The nodes are real engines on the real store that send real requests. They run in few processes: one node
// alone, to measure the memory of a node, and the others together on one store, which bounds their
// connections to eight, one for heartbeats and one per node to listen.
//
// The targets soak and soak-short of the Makefile run it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// asNodes is the argument that makes this program a process with nodes.
const asNodes = "as-nodes"

// options configure the age and size of the database, and the length of the measurements.
type options struct {
	triggers, overdue, labelled int // all triggers, and how many of them are overdue in a disabled app or of labelled jobs
	deleted, removed            int // jobs, and triggers of continuing jobs
	days, runs                  int // of history
	churnFires                  int // fires during the snapshot, before the measurements
	nodes, rate                 int // rate: fires per second of the healthy app
	turns, rounds               int // turns of each fleet, and measurements of each cost
	turn                        time.Duration
	keep, short                 bool
}

// smallSize sets the sizes of CI, which checks counts and orders, because the machine may be busy.
func (o *options) smallSize() {
	*o = options{
		triggers: 20_000, overdue: 10_000, labelled: 2_000, deleted: 200, removed: 500, days: 30, runs: 100_000, churnFires: 10_000,
		nodes: 4, rate: 50, turns: 1, rounds: 5, turn: 6 * time.Second, keep: o.keep, short: true,
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	var err error
	if len(os.Args) > 1 && os.Args[1] == asNodes {
		err = runNodes(ctx, os.Stdin, os.Stdout)
	} else {
		err = execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// parse parses the flags. Those after -short override its sizes.
func parse(args []string, errs io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.IntVar(&o.triggers, "triggers", 1_000_000, "triggers in all")
	flags.IntVar(&o.overdue, "overdue", 500_000, "triggers among them that are overdue, of a disabled app")
	flags.IntVar(&o.labelled, "labelled", 100_000, "triggers among them of jobs that require labels, which most nodes lack")
	flags.IntVar(&o.deleted, "deleted", 5_000, "jobs that were deleted long ago, of ten triggers each")
	flags.IntVar(&o.removed, "removed", 50_000, "triggers that were removed long ago from jobs that live on")
	flags.IntVar(&o.days, "days", 365, "days of history")
	flags.IntVar(&o.runs, "runs", 20_000_000, "runs of history")
	flags.IntVar(&o.churnFires, "churn", 300_000, "fires in the old database before the measurement, while its snapshot is open")
	flags.IntVar(&o.nodes, "nodes", 20, "nodes of each fleet")
	flags.IntVar(&o.rate, "rate", 200, "fires per second of the healthy app")
	flags.DurationVar(&o.turn, "turn", time.Minute, "how long a fleet is measured in one turn")
	flags.IntVar(&o.turns, "turns", 2, "turns of each fleet")
	flags.IntVar(&o.rounds, "rounds", 20, "how often each cost is measured in each database; the medians count")
	flags.BoolVar(&o.keep, "keep", false, "keep the directory of the databases")
	flags.BoolFunc("short", "a small database for CI, under a minute; counts and orders are judged, not speed", func(string) error {
		o.smallSize()
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return o, flag.ErrHelp
	}
	return o, errors.Join(o.check(), unexpected(flags.Args()))
}

func unexpected(args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q; all parameters are flags, see -help", args[0])
	}
	return nil
}

// check returns all problems of the sizes.
func (o options) check() error {
	var problems []error
	for _, flag := range []struct {
		name       string
		value, low int
	}{
		{"overdue", o.overdue, 10}, {"labelled", o.labelled, 10}, {"deleted", o.deleted, 10}, {"removed", o.removed, 10},
		{"days", o.days, 10}, {"runs", o.runs, 10 * o.days}, {"churn", o.churnFires, 0}, {"nodes", o.nodes, 2}, {"rate", o.rate, 1},
		{"turns", o.turns, 1}, {"rounds", o.rounds, 3}, {"triggers", o.triggers, o.overdue + o.labelled + 100},
	} {
		if flag.value < flag.low {
			problems = append(problems, fmt.Errorf("-%s is %d; the least is %d", flag.name, flag.value, flag.low))
		}
	}
	if o.turn < 5*time.Second {
		problems = append(problems, fmt.Errorf("-turn is %s; the least is 5s", o.turn))
	}
	return errors.Join(problems...)
}

// execute runs one soak.
func execute(ctx context.Context, args []string, out, errs io.Writer) (err error) {
	o, err := parse(args, errs)
	if err != nil {
		return err
	}
	w, err := newWorld(ctx, o, errs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"declare what both databases have", w.declareBoth},
		{"make definitions old", w.ageDefinitions},
		{"make a history", w.ageHistory},
		{"vacuum", w.vacuum},
		{"open a snapshot", w.openSnapshot},
		{"fire during the snapshot", w.churn},
		{"fire with all to be cleaned up", w.fireUncleaned},
		{"clean up", w.cleanUp},
		{"run fleets in turns", w.runFleets},
		{"count what was given up", w.countGivenUp},
		{"measure costs in turns", w.measureCosts},
	} {
		begun := time.Now()
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		fmt.Fprintf(errs, "%s: %s\n", step.name, time.Since(begun).Round(100*time.Millisecond))
	}
	missed := judge(w.figures, o.short)
	if err := write(out, w.figures); err != nil {
		return err
	}
	return errors.Join(missed...)
}
