package main

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
)

// pauseFlags name a job, or one of its triggers.
type pauseFlags struct {
	apiFlags
	outputFlags
	Job string `arg:"" name:"app/job[/trigger]" help:"The job, such as billing/invoices, or one trigger of it, such as billing/invoices/berlin."`
}

// set calls change with the job and the trigger, which may be empty, and prints the job, or for people what was done.
func (p *pauseFlags) set(
	ctx context.Context, c console, said string, change func(api *client.Client, app, job, trigger string) (dispatcher.Job, error),
) error {
	names, err := cutPath(p.Job, "APP/JOB[/TRIGGER]", 2)
	if err != nil {
		return err
	}
	api, err := p.client(ctx)
	if err != nil {
		return err
	}
	job, err := change(api, names[0], names[1], names[2])
	if err != nil {
		return err
	}
	if p.Output != outputTable {
		return printObject(p.outputFlags, c, job, nil)
	}
	_, err = fmt.Fprintln(c.out, plain(p.Job), said)
	return err
}

// jobPauseCommand pauses a job.
type jobPauseCommand struct {
	pauseFlags
	pauseFor
}

// Run pauses it.
func (p *jobPauseCommand) Run(ctx context.Context, c console) error {
	until, err := p.until(time.Now())
	if err != nil {
		return err
	}
	why := dispatcher.PauseRequest{Reason: p.Reason, Until: until}
	return p.set(ctx, c, "is paused: its fires are owed until you resume it",
		func(api *client.Client, app, job, trigger string) (dispatcher.Job, error) {
			return api.PauseJobFor(ctx, app, job, trigger, why, client.Condition{})
		})
}

// jobResumeCommand resumes a job.
type jobResumeCommand struct{ pauseFlags }

// Run resumes it.
func (r *jobResumeCommand) Run(ctx context.Context, c console) error {
	return r.set(ctx, c, "goes on; fires that were missed follow the misfire_policy of their triggers",
		func(api *client.Client, app, job, trigger string) (dispatcher.Job, error) {
			return api.PauseJob(ctx, app, job, trigger, false, client.Condition{})
		})
}
