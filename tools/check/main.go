package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// module is the path of the repository's module.
const module = "github.com/carillon-dev/carillon"

const usage = `usage, from the root of the repository:
  check run STEP...     run these steps; "all" is every step, and "rota" what .ci/run takes
  check list            print the names of all steps as JSON
  check clocks          report tests that judge how long something takes
  check report          print the records of former runs as a table
  check stress PKG...   run tests over and over next to processes that spin
"check run -h" and "check stress -h" have the flags. make has these commands as targets.`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	log := filepath.Join(root, ".cache", "check.jsonl")
	switch command := slices.Concat(args, []string{""})[0]; command {
	case "run":
		return runSteps(ctx, root, log, args[1:])
	case "list":
		return json.NewEncoder(os.Stdout).Encode(names(steps()))
	case "clocks":
		found, err := findClocks(root)
		if err == nil && len(found) > 0 {
			err = fmt.Errorf("tests that judge the machine:\n%s", strings.Join(found, "\n"))
		}
		return err
	case "report":
		return report(log, os.Stdout)
	case "stress":
		return runStress(ctx, root, args[1:])
	case "spin":
		keepBusy()
		return nil
	default:
		fmt.Fprintln(os.Stderr, usage)
		return fmt.Errorf("no command %q", command)
	}
}

// runSteps runs the steps that the arguments name.
func runSteps(ctx context.Context, root, log string, args []string) error {
	flags := flag.NewFlagSet("run", flag.ExitOnError)
	base := flags.String("base", "", "commit before the change that the rota looks at; default: the last one that is three hours older")
	flags.StringVar(&log, "log", log, "file to which a line of JSON is appended for each step")
	dry := flags.Bool("n", false, "only print the steps")
	_ = flags.Parse(args) // it exits on an error
	marks, err := findMarks(root)
	if err != nil {
		return err
	}
	var chosen []step
	for _, name := range flags.Args() {
		some, err := named(ctx, root, name, *base)
		if err != nil {
			return err
		}
		chosen = append(chosen, some...)
	}
	fmt.Println("steps:", strings.Join(names(chosen), ", "))
	if *dry {
		return nil
	}
	if err := adoptOrphans(); err != nil {
		return err
	}
	c := checker{root: root, marks: marks, log: log, alone: os.Getenv("CI") == "true", grace: time.Minute}
	return c.run(ctx, chosen)
}

// named returns the steps that an argument selects.
func named(ctx context.Context, root, name, base string) ([]step, error) {
	all := steps()
	switch name {
	case "all":
		return all, nil
	case "rota":
		always := slices.DeleteFunc(slices.Clone(all), func(s step) bool { return !s.always })
		table := slices.DeleteFunc(slices.Clone(all), func(s step) bool { return s.always || s.nightly })
		chosen, err := rota(ctx, root, table, base)
		if err != nil {
			return nil, err
		}
		if len(chosen.left) > 0 {
			fmt.Println("left for another run, although the change has to do with them:", strings.Join(names(chosen.left), ", "))
		}
		return append(always, chosen.taken...), nil
	}
	if at := slices.IndexFunc(all, func(s step) bool { return s.name == name }); at >= 0 {
		return all[at : at+1], nil
	}
	return nil, fmt.Errorf("no step %q; the steps are %s", name, strings.Join(names(all), ", "))
}

func names(of []step) []string {
	all := []string{}
	for _, s := range of {
		all = append(all, s.name)
	}
	return all
}

// runStress parses the flags of stress and runs it.
func runStress(ctx context.Context, root string, args []string) error {
	s := stress{root: root}
	flags := flag.NewFlagSet("stress", flag.ExitOnError)
	flags.IntVar(&s.rounds, "n", 20, "how often to run the tests")
	flags.IntVar(&s.spinning, "spin", 4*runtime.NumCPU(), "processes that spin meanwhile")
	flags.StringVar(&s.pattern, "run", "", "run only tests whose names match, as go test -run")
	flags.BoolVar(&s.short, "short", false, "leave out the tests of make check")
	flags.IntVar(&s.atOnce, "p", 2, "packages at once")
	_ = flags.Parse(args) // it exits on an error
	packages := flags.Args()
	if len(packages) == 0 {
		packages = []string{"./..."}
	}
	return s.run(ctx, packages)
}
