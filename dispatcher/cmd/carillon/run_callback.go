package main

import (
	"context"

	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// runCompleteCommand completes a run in place of its target.
type runCompleteCommand struct{ runEndFlags }

// runFailCommand fails the attempt of a run in place of its target.
type runFailCommand struct{ runEndFlags }

// runEndFlags are a run and what is said of its end.
type runEndFlags struct {
	runFlags
	Message string `placeholder:"TEXT" help:"Why, in at most 1024 bytes. It is kept with the attempt."`
}

// Run completes the run.
func (r *runCompleteCommand) Run(ctx context.Context, c console) error {
	return r.end(ctx, c, (*client.Client).CompleteRun)
}

// Run fails the attempt.
func (r *runFailCommand) Run(ctx context.Context, c console) error {
	return r.end(ctx, c, (*client.Client).FailRun)
}

// end ends the attempt, and prints the run as it is then.
func (r *runEndFlags) end(ctx context.Context, c console,
	by func(*client.Client, context.Context, string, string) (run.CallbackReply, error),
) error {
	api, err := r.client(ctx)
	if err != nil {
		return err
	}
	if _, err := by(api, ctx, r.ID, r.Message); err != nil {
		return err
	}
	run, err := api.Run(ctx, r.ID)
	if err != nil {
		return err
	}
	return printRunLine(c, r.outputFlags, run)
}
