package main

import (
	"context"

	"github.com/carillon-dev/carillon/dispatcher"
)

// jobRunCommand runs a job by hand.
type jobRunCommand struct {
	jobFlags
	waitFlags
}

// Run queues a run, and waits for its end if asked to.
func (r *jobRunCommand) Run(ctx context.Context, c console) error {
	api, app, job, err := r.open(ctx)
	if err != nil {
		return err
	}
	run, err := api.RunJob(ctx, app, job)
	if err != nil {
		return err
	}
	return r.finish(ctx, c, api, r.outputFlags, run)
}

// runRetryCommand repeats a run.
type runRetryCommand struct {
	runFlags
	waitFlags
}

// Run queues the run again, and waits for its end if asked to.
func (r *runRetryCommand) Run(ctx context.Context, c console) error {
	api, err := r.client(ctx)
	if err != nil {
		return err
	}
	run, err := api.RetryRun(ctx, r.ID)
	if err != nil {
		return err
	}
	return r.finish(ctx, c, api, r.outputFlags, run)
}

// runCancelCommand cancels a run.
type runCancelCommand struct{ runFlags }

// Run cancels the run.
func (r *runCancelCommand) Run(ctx context.Context, c console) error {
	api, err := r.client(ctx)
	if err != nil {
		return err
	}
	run, err := api.CancelRun(ctx, r.ID)
	if err != nil {
		return err
	}
	return printRunLine(c, r.outputFlags, run)
}

// printRunLine prints a run: as one line for people.
func printRunLine(c console, o outputFlags, run dispatcher.Run) error {
	if o.Output != outputTable {
		return printObject(o, c, run, nil)
	}
	t := &table{}
	t.add(runCells(run)...)
	return t.show(c)
}
