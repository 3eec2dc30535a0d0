package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Options configure the measurements.
type Options struct {
	// Database is a PostgreSQL database in which the benchmarks may create schemas, or a path for SQLite.
	Database string
	// Time is roughly how long one benchmark measures, without preparation.
	Time time.Duration
	// Rounds is how often a throughput and its ceilings are measured in turn; the result is the median.
	Rounds int
	// Peer is a shell command that measures a peer in turn with the throughput, or "". The last
	// line of its output is a number, or an object with a "value".
	Peer string
	// History is how many old runs the benchmark of retention creates.
	History int
	// Failing is how many jobs fail at once in the benchmark of failures, and Instants how many the backfill runs.
	Failing, Instants int
	// Pace is the pace of the backfill; 0 means unlimited.
	Pace time.Duration
	// Crowd is how many jobs the benchmark of the console has, and Node the carillon program that serves it.
	Crowd int
	Node  string
	// Unsigned makes webhook and lateness send requests without signatures.
	Unsigned bool
	// Profile is the directory for profiles of throughput benchmarks, or "".
	Profile string
	// Program is this program: a benchmark of several nodes runs each as a separate process, as
	// "Program as-node".
	Program string
	// Report receives each result.
	Report func(Result) error
}

// benches are the benchmarks in their order.
var benches = []struct {
	name string
	run  func(*bench, context.Context) error
}{
	{"store", (*bench).store},
	{"fire", (*bench).fire},
	{"webhook", (*bench).webhook},
	{"sqlite", (*bench).sqlite},
	{"lateness", (*bench).lateness},
	{"burst", (*bench).burst},
	{"hang", (*bench).hang},
	{"manual", (*bench).manual},
	{"failures", (*bench).failures},
	{"backfill", (*bench).backfill},
	{"nodes", (*bench).nodes},
	{"scale", (*bench).scale},
	{"retention", (*bench).retention},
	{"console", (*bench).console},
}

// runBench runs the named benchmark. Its error names the benchmark.
func runBench(ctx context.Context, name string, o Options) error {
	for _, b := range benches {
		if b.name == name {
			if err := runIn(ctx, o, b.run); err != nil {
				return fmt.Errorf("bench %s: %w", name, err)
			}
			return nil
		}
	}
	return fmt.Errorf("no bench %q; there are %s", name, strings.Join(benchNames(), ", "))
}

// exists reports whether a benchmark has that name.
func exists(name string) bool { return slices.Contains(benchNames(), name) }

// benchNames lists the benchmarks.
func benchNames() []string {
	names := make([]string, len(benches))
	for i, b := range benches {
		names[i] = b.name
	}
	return names
}

// bench is one benchmark in its own space.
type bench struct {
	Options
	*space
}

func runIn(ctx context.Context, o Options, run func(*bench, context.Context) error) (err error) {
	s, err := newSpace(ctx, o.Database)
	if err != nil {
		return err
	}
	defer func() {
		if removeErr := s.remove(context.WithoutCancel(ctx)); err == nil {
			err = removeErr
		}
	}()
	return run(&bench{o, s}, ctx)
}

// measure measures a rate for roughly that time.
type measure func(ctx context.Context, span time.Duration) (perSecond float64, err error)

// rates are the rates of one measurement, one per round.
type rates []float64

// inTurns takes several measurements in turns, so that a disturbance of the machine affects all of them.
func (b *bench) inTurns(ctx context.Context, things ...measure) ([]rates, error) {
	all := make([]rates, len(things))
	span := b.Time / time.Duration(b.Rounds*len(things))
	for range b.Rounds {
		for i, thing := range things {
			rate, err := thing(ctx, span)
			if err != nil {
				return nil, err
			}
			all[i] = append(all[i], rate)
		}
	}
	return all, nil
}

func (r rates) median() float64 {
	sorted := slices.Sorted(slices.Values(r))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// over returns the ratios to the other rates, round by round.
func (r rates) over(other rates) rates {
	ratios := make(rates, len(r))
	for i := range r {
		ratios[i] = r[i] / other[i]
	}
	return ratios
}

// harmonic combines two rates for work that needs both.
func (r rates) harmonic(other rates) rates {
	combined := make(rates, len(r))
	for i := range r {
		combined[i] = 1 / (1/r[i] + 1/other[i])
	}
	return combined
}
