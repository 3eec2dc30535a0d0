package api

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

const (
	// stopPatience bounds how long a cancellation waits for executors to stop, and stopsAtOnce how many are asked at once.
	stopPatience = 3 * time.Second
	stopsAtOnce  = 8
)

// acceptedRuns returns those runs that executors may have if run is cancelled: itself, or shards of it. In any other state
// than this one no executor has an attempt, and one that stopped would stop another run of the job.
func (a *API) acceptedRuns(r *request, one run.Run) ([]run.Run, error) {
	switch {
	case a.opts.Executors == nil:
		return nil, nil
	case one.State == run.WaitingCallback:
		return []run.Run{one}, nil
	case one.Shards != nil:
		return a.store.Runs(r.Context(), dispatcher.RunQuery{
			App: one.App, Parent: one.ID, State: run.WaitingCallback, Page: input.Page{Limit: target.MaxEndpoints},
		})
	}
	return nil, nil
}

// stopExecutors asks the executors of runs, all of one job, to stop, because the runs were cancelled. Nothing depends on
// their replies: the runs are over.
func (a *API) stopExecutors(r *request, accepted []run.Run) {
	call, err := a.executorsOf(r, accepted[0])
	if err != nil {
		return // no executor has them
	}
	r.EndTurn() // waiting for them is no work
	ctx, cancel := context.WithTimeout(r.Context(), stopPatience)
	defer cancel()
	var stops errgroup.Group
	stops.SetLimit(stopsAtOnce)
	for _, run := range accepted {
		a.strays.done(strayKey{run.App, run.ExecutorRun(run.Attempt).LogID})
		stops.Go(func() error {
			a.stopExecutor(ctx, r, call, run)
			return nil
		})
	}
	_ = stops.Wait() // each has logged its own
}

// stopExecutor asks the executor to stop that accepted the latest attempt of a run.
func (a *API) stopExecutor(ctx context.Context, r *request, call target.ExecutorCall, run run.Run) {
	read, err := a.store.Run(ctx, run.ID) // lists do not tell which executor has an attempt
	if err == nil {
		call, err = callOf(call, read, run.Attempt)
	}
	if err == nil {
		err = a.opts.Executors.StopExecutor(ctx, call)
	}
	if err == nil {
		return
	}
	if withheld, may := a.lines.May("executor not stopped", r.Now); may {
		a.log.WarnContext(ctx, "executor did not stop a cancelled run", "run", run.ID, "app", run.App, "job", run.Job,
			"endpoint", call.Endpoint.ID, "err", err, "lines_withheld", withheld)
	}
}
