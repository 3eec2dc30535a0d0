// Command chaos runs three dispatcher nodes over a PostgreSQL, injects the faults of production,
// and lets an independent checker judge the result.
//
// The nodes are built with the tags chaos and clockshift. The targets chaos and chaos-mutants of
// the Makefile run it; docs/why/reliability.md says what is tested and why.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/carillon-dev/carillon/test/program"
)

// options configure a run.
type options struct {
	program, checker string
	dir              string
	seconds          int
	seed             uint64
	kills, faults    string
	bounded          int // jobs of each concurrency policy
	keep, mutants    bool
	only             string
	args             []string // further arguments of the nodes
	separate         bool     // nodes have separate networks
	production       bool     // nodes have the settings of production
	look             string   // sh command that looks at the nodes
}

func main() {
	var o options
	flag.StringVar(&o.program, "program", "", "a carillon built with the tags chaos and clockshift; empty: build it")
	flag.StringVar(&o.checker, "checker", "", "the checker; empty: build it")
	flag.StringVar(&o.dir, "dir", "", "directory for the records of the run; empty: a temporary one, kept if the checker finds something")
	flag.IntVar(&o.seconds, "seconds", 60,
		"how long the run takes, from the first node's start to the checker's; rollbacks follow, for half as long")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "seed of the faults and their times; a run repeats only roughly")
	flag.StringVar(&o.kills, "kills", "",
		"failpoints at which to kill nodes or to stop them for a while, such as K3,stop K7; empty: all; none: none")
	flag.StringVar(&o.faults, "faults", "", "other faults, such as freeze,poison,rollback; empty: all; none: none")
	flag.IntVar(&o.bounded, "bounded", 50, "jobs of each concurrency policy")
	flag.BoolVar(&o.keep, "keep", false, "always keep the directory")
	flag.BoolVar(&o.mutants, "mutants", false,
		"break the product on purpose, one way after the other, and require that the checker notices each")
	flag.StringVar(&o.only, "only", "", "run only the mutant of this name")
	flag.BoolVar(&o.production, "production", false,
		"run nodes with the default settings: window 5 s, handler 15 s, dead after 60 s; needs 300 seconds or more")
	flag.StringVar(&o.look, "look", "",
		"command for sh that is run when all faults are over and jobs still fire, with the URL of a node in CHAOS_URL and an API token "+
			"in CHAOS_TOKEN")
	flag.BoolVar(&o.separate, "separate", false, "internal: this process has its own networks and mounts")
	flag.Func("node-arg", "further argument of the nodes; may be repeated", func(arg string) error {
		o.args = append(o.args, arg)
		return nil
	})
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	err := run(ctx, o)
	if err == nil {
		return
	}
	switch {
	case errors.Is(err, errTogether):
		fmt.Println(err)
		os.Exit(exitTogether)
	case !errors.Is(err, errVerdict):
		fmt.Fprintln(os.Stderr, "chaos:", err)
	}
	os.Exit(1)
}

// errVerdict means that the checker found problems and printed them.
var errVerdict = errors.New("the checker found problems")

// run makes one run, or one for each mutant.
func run(ctx context.Context, o options) error {
	if o.separate {
		if err := layVethLinks(ctx, nodeCount); err != nil {
			return fmt.Errorf("%w: %w", errTogether, err)
		}
		return runHere(ctx, o, os.Stdout)
	}
	if o.dir == "" {
		dir, err := os.MkdirTemp("", "carillon-chaos-")
		if err != nil {
			return err
		}
		o.dir = dir
	}
	err := os.MkdirAll(o.dir, 0o755)
	if err == nil {
		err = o.build(ctx)
	}
	if err == nil && o.mutants {
		err = runMutants(ctx, o)
	} else if err == nil {
		err = runOnce(ctx, o, os.Stdout)
	}
	if err != nil || o.keep {
		fmt.Fprintln(os.Stderr, "the records of the run are in", o.dir)
		return err
	}
	return os.RemoveAll(o.dir)
}

// build builds the programs that no flag names.
func (o *options) build(ctx context.Context) (err error) {
	if o.checker == "" {
		o.checker = o.dir + "/checker"
		if err := program.Build(ctx, "", o.checker, "./test/chaos/checker"); err != nil {
			return err
		}
	}
	if o.program == "" && !o.mutants {
		o.program = o.dir + "/carillon"
		return buildNode(ctx, o.program, o.dir, nil)
	}
	return nil
}

// runOnce makes one run, with network namespaces if possible.
func runOnce(ctx context.Context, o options, w io.Writer) error {
	fmt.Fprintf(w, "chaos: %d s, seed %d\n", o.seconds, o.seed)
	err := runSeparately(ctx, o, program.NewSpawner(), w)
	if !errors.Is(err, errTogether) {
		return err
	}
	return runHere(ctx, o, w)
}

// listed splits a comma-separated list, or returns all.
func listed(given string, all []string) []string {
	switch given {
	case "":
		return all
	case "none":
		return nil
	}
	return strings.Split(given, ",")
}
