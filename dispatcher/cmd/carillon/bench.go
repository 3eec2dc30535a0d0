package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/cmd/carillon/bench"
)

// benchCommand measures this machine, its database and Carillon on both.
type benchCommand struct {
	databaseFlag
	Bench    []string `arg:"" optional:"" placeholder:"BENCH" help:"Benchmarks to run: store, fire, webhook, lateness, burst, hang, nodes, scale, retention; default all."`
	JSON     bool     `name:"json" help:"Print one JSON object a line."`
	Seconds  int      `default:"25" help:"About how long each benchmark measures, 1 to 3600, besides what it needs to prepare."`
	Rounds   int      `default:"5" help:"How often throughput and ceilings are measured in turn, 1 to 100; medians count."`
	PeerCmd  string   `placeholder:"COMMAND" help:"Shell command that measures something else in turn with the throughput benchmarks. Its last line of output is a number of fires a second, or an object with that as value; BENCH_SECONDS and BENCH_DATABASE tell it for how long, and where."`
	History  int      `default:"1000000" help:"How many old runs the benchmark retention makes up, 10000 to 100000000."`
	Unsigned bool     `help:"Let webhook and lateness send their requests without signatures; as --peer-cmd of itself, this tells what signatures cost."`
}

// Help says what the benchmarks do to the database.
func (benchCommand) Help() string {
	return `In PostgreSQL everything happens in a schema of a random name, and beside a SQLite database in a
directory of one; both are removed at the end. Nodes that use the same PostgreSQL server share its
power, so do not measure beside them.`
}

// Validate checks names and numbers.
func (b *benchCommand) Validate() error {
	problems := []error{b.check()}
	for _, name := range b.Bench {
		if !bench.Exists(name) {
			problems = append(problems, fmt.Errorf("no benchmark %q; there are %s", name, strings.Join(bench.Names(), ", ")))
		}
	}
	if b.Seconds < 1 || b.Seconds > 3600 {
		problems = append(problems, fmt.Errorf("--seconds: %d is not between 1 and 3600", b.Seconds))
	}
	if b.History < 10_000 || b.History > 100_000_000 {
		problems = append(problems, fmt.Errorf("--history: %d is not between 10000 and 100000000", b.History))
	}
	if b.Rounds < 1 || b.Rounds > 100 {
		problems = append(problems, fmt.Errorf("--rounds: %d is not between 1 and 100", b.Rounds))
	}
	return errors.Join(problems...)
}

// Run runs the benchmarks one after the other.
func (b *benchCommand) Run(ctx context.Context, c console) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	report := bench.Table(c.out)
	if b.JSON {
		report = bench.JSON(c.out)
	}
	names := b.Bench
	if len(names) == 0 {
		names = bench.Names()
	}
	for _, name := range names {
		err := bench.Run(ctx, name, bench.Options{
			Database: b.Database, Time: time.Duration(b.Seconds) * time.Second, Rounds: b.Rounds, Peer: b.PeerCmd, History: b.History, Unsigned: b.Unsigned,
			Program: program, NodeArgs: []string{"bench-node"}, Report: report,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// benchNodeCommand is a node of the benchmarks that need several processes.
type benchNodeCommand struct {
	databaseFlag
}

// Run runs the node until standard input ends.
func (b *benchNodeCommand) Run(ctx context.Context, c console) error {
	return bench.RunNode(ctx, b.Database, c.in, c.out)
}
