// Command tenants runs two apps on shared nodes, one of them hostile by all means that its token permits, and
// checks that the other app is not affected: its fires stay punctual and complete, and its secrets, functions,
// responses and circuits stay its own.
//
// The nodes are the real program over their own PostgreSQL. The hostile app's owner is a separate process with
// the lowest priority, so that it can harm the other app only through the nodes. A seed determines its actions.
//
// It prints one line of JSON per figure and a sentence for each missed bar; then it exits with 1. The targets
// soak and soak-short of the Makefile run it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// asHostile is the argument that makes this program the owner of the hostile app.
const asHostile = "as-hostile"

type options struct {
	quiet, hostile time.Duration // of the two phases
	seed           uint64
	short          bool
	logs           string // directory for the logs of nodes; empty for the temporary one
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	var err error
	if len(os.Args) > 1 && os.Args[1] == asHostile {
		err = runHostile(ctx, os.Stdout)
	} else {
		err = execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "tenants:", err)
		os.Exit(1)
	}
}

func parse(args []string, errs io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("tenants", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.DurationVar(&o.quiet, "quiet", 2*time.Minute, "how long the app is measured without its neighbour")
	flags.DurationVar(&o.hostile, "hostile", 10*time.Minute, "how long it is measured with it")
	flags.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "of the hostile app's actions") //nolint:gosec // after 1970
	flags.StringVar(&o.logs, "logs", "", "directory for the logs of the nodes")
	flags.BoolFunc("short", "10 s and 30 s, for CI; counts and isolation are judged, and punctuality generously", func(string) error {
		o.quiet, o.hostile, o.short = 10*time.Second, 30*time.Second, true
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return o, flag.ErrHelp
	}
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q; all parameters are flags, see -help", flags.Arg(0))
	case o.quiet < 5*time.Second || o.hostile < 10*time.Second:
		err = errors.New("-quiet is at least 5s and -hostile at least 10s")
	}
	return o, err
}

func execute(ctx context.Context, args []string, out, errs io.Writer) (err error) {
	o, err := parse(args, errs)
	if err != nil {
		return err
	}
	fmt.Fprintf(errs, "seed %d\n", o.seed)
	w, err := newWorld(ctx, o, errs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	found, err := w.measure(ctx)
	if err != nil {
		return err
	}
	fmt.Fprint(errs, found.compare())
	encoder := json.NewEncoder(out)
	for _, one := range found.figures() {
		if err := encoder.Encode(one); err != nil {
			return err
		}
	}
	return errors.Join(found.judge(o.short)...)
}
