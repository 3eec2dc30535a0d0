package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// jobStateCommand is about the state that the runs of a job carry.
type jobStateCommand struct {
	Show  jobStateShowCommand  `cmd:"" help:"Show the state that the next run of a job gets." example:"carillon job state show billing/invoices"`
	Set   jobStateSetCommand   `cmd:"" group:"operate" help:"Set the state that the next run of a job gets." example:"carillon job state set billing/invoices '{\"cursor\": 4711}'"`
	Clear jobStateClearCommand `cmd:"" group:"operate" help:"Clear the state that a job's runs carry." example:"carillon job state clear billing/invoices"`
}

// jobStateShowCommand shows the state of a job.
type jobStateShowCommand struct{ jobFlags }

// Run prints it.
func (s *jobStateShowCommand) Run(ctx context.Context, c console) error {
	api, app, name, err := s.open(ctx)
	if err != nil {
		return err
	}
	state, err := api.CarriedState(ctx, app, name)
	if err != nil {
		return err
	}
	return s.print(c, state)
}

// print prints the state of a job.
func (j *jobFlags) print(c console, state run.CarriedState) error {
	return printObject(j.outputFlags, c, state, func(l *lines) {
		l.add("job", j.Job)
		l.add("state", string(state.State))
		l.add("revision", state.Revision)
		l.add("updated at", state.UpdatedAt)
		l.add("returned by run", state.Run)
		l.add("set by", state.SetBy)
		l.add("discarded", discarded(state.DiscardedRun))
	})
}

// discarded says whose state was discarded; empty: nobody's.
func discarded(run string) string {
	if run == "" {
		return ""
	}
	return "what run " + run + " returned, because the state was changed while it ran"
}

// jobStateSetCommand sets the state of a job.
type jobStateSetCommand struct {
	jobFlags
	State    string `arg:"" help:"JSON of at most 4 KiB; - reads it from standard input."`
	Revision int64  `placeholder:"N" help:"Only if this is the revision of the state that is there."`
}

// Run sets it.
func (s *jobStateSetCommand) Run(ctx context.Context, c console) error {
	text := s.State
	if text == "-" {
		most := int64(4*run.MaxCarriedState + 1)
		read, err := io.ReadAll(io.LimitReader(c.in, most))
		if err != nil {
			return fmt.Errorf("read the state: %w", err)
		}
		text = strings.TrimSpace(string(read))
	}
	state, err := run.ReadCarriedState([]byte(text))
	if err != nil {
		return fmt.Errorf("%w; give JSON, such as '{\"cursor\": 4711}'", err)
	}
	api, app, name, err := s.open(ctx)
	if err != nil {
		return err
	}
	stored, err := api.SetCarriedState(ctx, app, name, state, atRevision(s.Revision))
	if err != nil {
		return err
	}
	return s.print(c, stored)
}

// atRevision is the condition that a revision is current; 0: whatever there is.
func atRevision(revision int64) client.Condition {
	if revision == 0 {
		return client.Condition{Existing: true}
	}
	return client.Condition{Revision: revision}
}

// jobStateClearCommand clears the state of a job.
type jobStateClearCommand struct {
	jobFlags
	Revision int64 `placeholder:"N" help:"Only if this is the revision of the state that is there."`
}

// Run clears it.
func (s *jobStateClearCommand) Run(ctx context.Context, c console) error {
	api, app, name, err := s.open(ctx)
	if err != nil {
		return err
	}
	if err := api.ClearCarriedState(ctx, app, name, atRevision(s.Revision)); err != nil {
		return err
	}
	state, err := api.CarriedState(ctx, app, name)
	if err != nil {
		return err
	}
	return s.print(c, state)
}
