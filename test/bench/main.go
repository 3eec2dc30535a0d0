// Command carillon-bench compares Carillon with the best possible results of its machine.
//
// Figures of one machine say little about another, and the same machine halves its own when it is
// busy. So each benchmark measures ceilings in turn with itself, in rounds: bare SQL, a minimal
// pair of tables that is claimed and recorded in batches of 500 over two connections; bare HTTP,
// resty against a receiver and nothing else; and where a fire needs both, their harmonic
// combination. It reports medians over the rounds; the ratio to the ceiling is the median of the
// rounds' ratios.
//
// The benchmarks work in a schema with a random name or, for SQLite, in such a directory next to
// the file. Both are removed at the end.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

// version is set by the build.
var version = "0.0.0-dev"

// Exit codes, as those of carillon.
const (
	exitFailure = 1 // a benchmark failed
	exitUsage   = 2 // a flag or an argument is invalid
)

// description is the help text above the flags.
const description = `Measures Carillon side by side with the limits of this machine and its database.

For PostgreSQL, everything happens in a new schema with a random name; for SQLite, in a new directory next to the
database file. Both are removed at the end. Nodes that use the same PostgreSQL server share its capacity, so do not
run them while you measure.

"carillon-bench size" measures what one node carries in the processor and memory of a small task,
"carillon-bench terraform" what plans of many jobs need; see their --help.`

// databaseFlag is the database to measure.
type databaseFlag struct {
	Database string `env:"CARILLON_DATABASE,DATABASE_URL" required:"" placeholder:"URL" help:"postgres://user@host/name or sqlite:PATH."`
}

// measureCommand measures this machine, its database and Carillon on both; kong fills it from flags
// and the environment.
type measureCommand struct {
	databaseFlag
	Bench    []string      `arg:"" optional:"" placeholder:"BENCH" help:"Benchmarks to run: store, fire, webhook, sqlite, lateness, burst, hang, manual, failures, backfill, nodes, scale, retention, console. Default: all."`
	JSON     bool          `name:"json" help:"Print one JSON object a line."`
	Seconds  int           `default:"25" help:"Seconds that each benchmark measures, roughly and without its preparation, 1 to 3600."`
	Rounds   int           `default:"5" help:"How often throughput and ceilings are measured in turn, 1 to 100. The medians count."`
	PeerCmd  string        `placeholder:"COMMAND" help:"${peer}"`
	History  int           `default:"1000000" help:"Old runs that the retention benchmark creates, 10000 to 100000000."`
	Jobs     int           `default:"50000" help:"Jobs that the console benchmark declares, with 40 runs each, 1000 to 1000000."`
	Pace     time.Duration `placeholder:"DURATION" help:"The pace of the backfill benchmark; default: as fast as it goes."`
	Node     string        `placeholder:"FILE" help:"The carillon program that the console benchmark looks at; default: the one next to this program."`
	Profile  string        `placeholder:"DIR" type:"existingdir" help:"Write profiles of the CPU and the allocations of the last round of fires into this directory."`
	Unsigned bool          `help:"Send the requests of webhook and lateness without signatures. Use it in --peer-cmd to see what signatures cost."`

	Version kong.VersionFlag `help:"Print the version."`
}

const peerHelp = "Shell command that measures something else in turn with the throughput benchmarks. Its last line of " +
	"output is a number of fires per second, or an object with that number as value. It finds its time and database " +
	"in BENCH_SECONDS and BENCH_DATABASE."

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if code := execute(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr); code != 0 {
		os.Exit(code)
	}
}

// execute executes one command line and returns the exit code.
func execute(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	var command any = &measureCommand{}
	switch {
	case len(args) == 0:
	case args[0] == asNode:
		command, args = &asNodeCommand{}, args[1:]
	case args[0] == "size":
		command, args = &sizeCommand{}, args[1:]
	case args[0] == "terraform":
		command, args = &terraformCommand{}, args[1:]
	}
	exited := -1
	parser := kong.Must(command,
		kong.Name("carillon-bench"), kong.Description(description), kong.Writers(out, errs), kong.UsageOnError(),
		kong.Vars{"version": "carillon-bench " + version, "peer": peerHelp},
		kong.Exit(func(code int) { exited = code }),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.BindTo(in, (*io.Reader)(nil)), kong.BindTo(out, (*io.Writer)(nil)),
		kong.Bind(&progress{errs}),
	)
	parsed, err := parser.Parse(args)
	switch {
	case exited >= 0:
		return exited // after --help or --version
	case err != nil:
		return fail(errs, err, exitUsage)
	}
	if err := parsed.Run(); err != nil {
		return fail(errs, err, exitFailure)
	}
	return 0
}

func fail(errs io.Writer, err error, code int) int {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintln(errs, "carillon-bench:", line)
	}
	return code
}

// Validate checks names and numbers, and reports all problems.
func (m *measureCommand) Validate() error {
	var problems []error
	// The value is not shown, because it may contain a password.
	file, isFile := strings.CutPrefix(m.Database, "sqlite:")
	if scheme, rest, _ := strings.Cut(m.Database, "://"); (!isFile || file == "") &&
		(scheme != "postgres" && scheme != "postgresql" || rest == "") {
		problems = append(problems, errors.New("--database (CARILLON_DATABASE) is not postgres://user@host/name or sqlite:PATH"))
	}
	for _, name := range m.Bench {
		if !exists(name) {
			problems = append(problems, fmt.Errorf("no benchmark %q; there are %s", name, strings.Join(benchNames(), ", ")))
		}
	}
	for _, flag := range []struct {
		name             string
		value, low, high int
	}{{"seconds", m.Seconds, 1, 3600}, {"history", m.History, 10_000, 100_000_000}, {"rounds", m.Rounds, 1, 100},
		{"jobs", m.Jobs, 1000, 1_000_000}} {
		if flag.value < flag.low || flag.value > flag.high {
			problems = append(problems, fmt.Errorf("--%s: %d is not between %d and %d", flag.name, flag.value, flag.low, flag.high))
		}
	}
	return errors.Join(problems...)
}

// Run runs the benchmarks one after the other.
func (m *measureCommand) Run(ctx context.Context, out io.Writer) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	report := tableReport(out)
	if m.JSON {
		report = jsonReport(out)
	}
	if m.Profile != "" {
		runtime.MemProfileRate = sampleEvery
	}
	names := m.Bench
	if len(names) == 0 {
		names = benchNames()
	}
	for _, name := range names {
		err := runBench(ctx, name, Options{
			Database: m.Database, Time: time.Duration(m.Seconds) * time.Second, Rounds: m.Rounds, Peer: m.PeerCmd,
			Crowd: m.Jobs, Node: cmp.Or(m.Node, filepath.Join(filepath.Dir(program), "carillon")), History: m.History, Failing: failingJobs,
			Instants: backfilledInstants, Pace: m.Pace,
			Unsigned: m.Unsigned, Profile: m.Profile, Program: program, Report: report,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// asNodeCommand runs the nodes of a process in a benchmark of several processes.
type asNodeCommand struct {
	databaseFlag
	Nodes int `default:"1" help:"How many nodes share the process and its connections."`
}

// Run runs the nodes until standard input ends.
func (n *asNodeCommand) Run(ctx context.Context, in io.Reader, out io.Writer) error {
	return runAsNode(ctx, n.Database, n.Nodes, in, out)
}
