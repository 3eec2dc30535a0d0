package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// jobRunCommand runs a job by hand.
type jobRunCommand struct {
	jobFlags
	waitFlags
	payloadFlags
}

// payloadFlags give a payload in place of the job's.
type payloadFlags struct {
	Payload string `placeholder:"JSON|@FILE|-" help:"Payload in place of the job's: JSON, @ and the path of a file with JSON, or - for standard input."`
}

// read returns the payload; nil: none was given.
func (f payloadFlags) read(c console) (json.RawMessage, error) {
	text, from := []byte(f.Payload), "--payload"
	var err error
	switch {
	case f.Payload == "":
		return nil, nil
	case f.Payload == "-":
		from = "standard input"
		text, err = io.ReadAll(io.LimitReader(c.in, input.MaxPayload+1))
	case strings.HasPrefix(f.Payload, "@"):
		from = "file " + plain(f.Payload[1:])
		text, err = os.ReadFile(f.Payload[1:])
	}
	if err != nil {
		return nil, fmt.Errorf("read the payload from %s: %w", from, err)
	}
	if text = bytes.TrimSpace(text); !json.Valid(text) {
		return nil, &usageError{fmt.Errorf("%s: the payload is not JSON; write a text in quotes, and a file as @PATH", from)}
	}
	return text, nil
}

// Run queues a run, and waits for its end if asked to.
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
func printRunLine(c console, o outputFlags, run run.Run) error {
	if o.Output != outputTable {
		return printObject(o, c, run, nil)
	}
	t := &table{}
	t.add(runCells(run)...)
	return t.show(c)
}
