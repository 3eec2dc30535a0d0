package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// jobRunCommand runs a job by hand.
type jobRunCommand struct {
	jobFlags
	waitFlags
	payloadFlags
}

// payloadFlags set a payload in place of the job's.
type payloadFlags struct {
	Payload string `placeholder:"JSON|@FILE|-" help:"Payload in place of the job's: JSON, @ and the path of a file with JSON, or - for standard input."`
}

// read returns the payload; nil if none was given.
func (f payloadFlags) read(c console) (json.RawMessage, error) {
	if f.Payload == "" {
		return nil, nil
	}
	text, from, err := readJSON(c, f.Payload)
	if err != nil {
		return nil, err
	}
	if !json.Valid(text) {
		return nil, &usageError{fmt.Errorf("--payload: %s is not JSON; write a text in quotes, and a file as @PATH", from)}
	}
	return text, nil
}

// Run queues a run, and with --wait waits for its end.
func (r *jobRunCommand) Run(ctx context.Context, c console) error {
	payload, err := r.read(c)
	if err != nil {
		return err
	}
	api, app, job, err := r.open(ctx)
	if err != nil {
		return err
	}
	run, err := api.RunJobWith(ctx, app, job, dispatcher.RunRequest{Payload: payload})
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

// Run queues the run again, and with --wait waits for its end.
func (r *runRetryCommand) Run(ctx context.Context, c console, api *client.Client) error {
	run, err := api.RetryRun(ctx, r.ID)
	if err != nil {
		return err
	}
	return r.finish(ctx, c, api, r.outputFlags, run)
}

type runCancelCommand struct{ runFlags }

func (r *runCancelCommand) Run(ctx context.Context, c console) error {
	return r.call(ctx, c, (*client.Client).CancelRun)
}

// printRunLine prints a run; for people, as one line, below the titles unless they have been printed.
func printRunLine(c console, o outputFlags, run run.Run, titled bool) error {
	if o.Output != outputTable {
		return printObject(o, c, run, nil)
	}
	t := &table{}
	if !titled {
		t = newTable(runTitles)
	}
	t.add(runCells(run)...)
	return t.show(c)
}

// pauseFlags name a job, or one of its triggers.
type pauseFlags struct {
	apiFlags
	outputFlags
	Job string `arg:"" name:"app/job[/trigger]" help:"The job, such as billing/invoices, or one trigger of it, such as billing/invoices/berlin."`
}

// set calls change with the job and the trigger, which may be empty, and prints the job, or a sentence for people.
func (p *pauseFlags) set(
	ctx context.Context, c console, said string, change func(api *client.Client, of client.Pausable) (dispatcher.Job, error),
) error {
	names, err := cutPath(p.Job, "APP/JOB[/TRIGGER]", 2)
	if err != nil {
		return err
	}
	api, err := p.ProvideClient(ctx)
	if err != nil {
		return err
	}
	job, err := change(api, client.Pausable{App: names[0], Job: names[1], Trigger: names[2]})
	if err != nil {
		return err
	}
	return printSaid(p.outputFlags, c, job, plain(p.Job)+" "+said)
}

type jobPauseCommand struct {
	pauseFlags
	pauseFor
}

func (p *jobPauseCommand) Run(ctx context.Context, c console) error {
	until, err := p.until(time.Now())
	if err != nil {
		return err
	}
	why := dispatcher.PauseRequest{Reason: p.Reason, Until: until}
	return p.set(ctx, c, "is paused: its fires are owed until you resume it",
		func(api *client.Client, of client.Pausable) (dispatcher.Job, error) {
			return api.PauseJob(ctx, of, why, client.Condition{})
		})
}

type jobResumeCommand struct{ pauseFlags }

func (r *jobResumeCommand) Run(ctx context.Context, c console) error {
	return r.set(ctx, c, "goes on; fires that were missed follow the misfire_policy of their triggers",
		func(api *client.Client, of client.Pausable) (dispatcher.Job, error) {
			return api.ResumeJob(ctx, of, client.Condition{})
		})
}

type jobRenameCommand struct {
	jobFlags
	Name    string            `arg:"" optional:"" help:"The new name of the job, such as bills. Default: it stays."`
	Trigger map[string]string `mapsep:"," placeholder:"OLD=NEW,..." help:"New names of triggers. Two of them can swap their names."`
}

func (r *jobRenameCommand) Validate() error {
	if r.Name == "" && len(r.Trigger) == 0 {
		return errors.New("nothing is to be renamed; give the new name of the job, or --trigger OLD=NEW")
	}
	return r.rename().Validate()
}

func (r *jobRenameCommand) rename() dispatcher.JobRename {
	return dispatcher.JobRename{Name: r.Name, Triggers: r.Trigger}
}

// Run renames the job and prints it, or a sentence for people.
func (r *jobRenameCommand) Run(ctx context.Context, c console) error {
	api, app, name, err := r.open(ctx)
	if err != nil {
		return err
	}
	job, err := api.Job(ctx, app, name)
	if err != nil {
		return err
	}
	if job, err = api.RenameJob(ctx, app, name, r.rename(), client.Condition{Revision: job.Revision}); err != nil {
		return err
	}
	var said []string
	if r.Name != "" {
		said = append(said, plain(r.Job)+" is now "+plain(app+"/"+job.Name))
	}
	for _, old := range slices.Sorted(maps.Keys(r.Trigger)) {
		said = append(said, "trigger "+plain(r.Job+"/"+old)+" is now "+plain(app+"/"+job.Name+"/"+r.Trigger[old]))
	}
	return printSaid(r.outputFlags, c, job, strings.Join(said, "\n"))
}
