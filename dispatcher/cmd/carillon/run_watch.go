package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// waitFlags let a command wait for the end of a run.
type waitFlags struct {
	Wait    bool           `help:"Wait until the run ends. Exit code 8: it did not succeed."`
	Timeout input.Duration `default:"0s" help:"With --wait: how long to wait at most; the run goes on. 0s: until it ends."`
}

// finish prints a run, at once or when it has ended.
func (w waitFlags) finish(ctx context.Context, c console, api *client.Client, o outputFlags, run run.Run) error {
	if !w.Wait {
		return printRunLine(c, o, run)
	}
	fmt.Fprintf(c.err, "carillon: waiting for run %s\n", run.ID)
	return watchRun(ctx, c, api, o, run, w.Timeout)
}

// runWatchCommand waits for the end of a run.
type runWatchCommand struct {
	runFlags
	Timeout input.Duration `default:"0s" help:"How long to wait at most; the run goes on. 0s: until it ends."`
}

// Run prints each change of the run until it ends.
func (w *runWatchCommand) Run(ctx context.Context, c console) error {
	api, err := w.client(ctx)
	if err != nil {
		return err
	}
	run, err := api.Run(ctx, w.ID)
	if err != nil {
		return err
	}
	return watchRun(ctx, c, api, w.outputFlags, run, w.Timeout)
}

// watchRun prints each change of a run until it ends; as one object of JSON, only its end.
func watchRun(ctx context.Context, c console, api *client.Client, o outputFlags, r run.Run, most input.Duration) error {
	if most > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, most.Std())
		defer cancel()
	}
	var shown run.Run
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		final := hasEnded(r)
		if changed := r.State != shown.State || r.Attempt != shown.Attempt; changed && (final || o.Output != outputJSON) {
			if err := printRunLine(c, o, r); err != nil {
				return err
			}
			shown, wait = r, 100*time.Millisecond
		}
		if final {
			return judge(r)
		}
		pause(ctx, wait)
		next, err := api.Run(ctx, r.ID)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("run %s has not ended yet, it is %s; go on with: carillon run watch %s", r.ID, r.State, r.ID)
		case err != nil:
			return err
		}
		r = next
	}
}

// hasEnded tells whether a run changes no more, unless someone repeats it.
func hasEnded(r run.Run) bool {
	return slices.Index(run.States, r.State) >= slices.Index(run.States, run.Succeeded)
}

// judge is an error if a run ended in any other way than with success.
func judge(r run.Run) error {
	if r.State == run.Succeeded {
		return nil
	}
	return &negativeError{fmt.Errorf("run %s ended as %s: carillon run show %s says more", r.ID, r.State, r.ID)}
}
