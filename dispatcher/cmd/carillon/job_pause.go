package main

import (
	"context"
	"fmt"
	"io"

	"github.com/carillon-dev/carillon/dispatcher/client"
)

// pauseFlags name a job, or one of its triggers.
type pauseFlags struct {
	apiFlags
	outputFlags
	Job string `arg:"" name:"app/job[/trigger]" help:"The job, such as billing/invoices, or one trigger of it, such as billing/invoices/berlin."`
}

// set pauses or resumes.
func (p *pauseFlags) set(ctx context.Context, c console, paused bool) error {
	names, err := cutPath(p.Job, "APP/JOB[/TRIGGER]", 2)
	if err != nil {
		return err
	}
	api, err := p.client()
	if err != nil {
		return err
	}
	job, err := api.PauseJob(ctx, names[0], names[1], names[2], paused, client.Condition{})
	if err != nil {
		return err
	}
	if p.Output != outputTable {
		return printObject(p.outputFlags, c, job, nil)
	}
	said := "%s is paused: its fires are owed until you resume it\n"
	if !paused {
		said = "%s goes on; fires that were missed follow the misfire_policy of their triggers\n"
	}
	_, err = io.WriteString(c.out, fmt.Sprintf(said, plain(p.Job)))
	return err
}

// jobPauseCommand pauses a job.
type jobPauseCommand struct{ pauseFlags }

// Run pauses it.
func (p *jobPauseCommand) Run(ctx context.Context, c console) error { return p.set(ctx, c, true) }

// jobResumeCommand resumes a job.
type jobResumeCommand struct{ pauseFlags }

// Run resumes it.
func (r *jobResumeCommand) Run(ctx context.Context, c console) error { return r.set(ctx, c, false) }
