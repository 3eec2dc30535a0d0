package main

import (
	"context"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher"
)

// rollbackCommand shows and settles a rollback, directly in the database.
type rollbackCommand struct {
	Show    rollbackShowCommand    `cmd:"" help:"Tell whether the database lost commits, and by what that was noticed."`
	Declare rollbackDeclareCommand `cmd:"" help:"Say that the database was restored, before nodes are started over it, where they could not notice it."`
	Skip    rollbackSkipCommand    `cmd:"" help:"Settle all instants up to now as skipped and end as lost what was under way, then let nodes go on: nothing is sent twice."`
	Replay  rollbackReplayCommand  `cmd:"" help:"Let nodes go on as the database has it: nothing is left out, and what had fired since fires again under the same event ids."`
}

// rollbackFlags name a database.
type rollbackFlags struct{ databaseFlag }

// in does something with the store, and prints the rollback that it returns.
func (r *rollbackFlags) in(ctx context.Context, c console, do func(dispatcher.Store) (*dispatcher.Rollback, error)) error {
	s, err := openBeside(ctx, r.Database)
	if err != nil {
		return err
	}
	defer s.Close()
	rollback, err := do(s)
	if err != nil {
		return err
	}
	if rollback == nil {
		_, err = fmt.Fprintln(c.out, "the database was not rolled back, as far as its nodes know")
		return err
	}
	state := "nodes are paused until skip or replay is chosen"
	switch rollback.Choice {
	case dispatcher.RollbackSkip:
		state = "skip was chosen: a node carries it out in its next round, then nodes go on"
	case dispatcher.RollbackReplay:
		state = "replay was chosen: nodes go on with their next heartbeat"
	}
	_, err = fmt.Fprintf(c.out, "rolled back, noticed at %s\nreason: %s\n%s\n", dispatcher.FormatInstant(rollback.At), rollback.Reason, state)
	return err
}

func (r *rollbackFlags) resolve(ctx context.Context, c console, choice dispatcher.RollbackChoice) error {
	return r.in(ctx, c, func(s dispatcher.Store) (*dispatcher.Rollback, error) {
		rollback, err := s.ResolveRollback(ctx, choice, dispatcher.Change{Actor: "command line"})
		return &rollback, err
	})
}

// rollbackShowCommand shows a rollback.
type rollbackShowCommand struct{ rollbackFlags }

// Run prints it.
func (r *rollbackShowCommand) Run(ctx context.Context, c console) error {
	return r.in(ctx, c, func(s dispatcher.Store) (*dispatcher.Rollback, error) { return s.Rollback(ctx) })
}

// rollbackDeclareCommand declares a rollback.
type rollbackDeclareCommand struct {
	rollbackFlags
	Reason string `default:"an operator has restored it" help:"What happened, for the audit."`
}

// Run pauses all nodes, and those to come.
func (r *rollbackDeclareCommand) Run(ctx context.Context, c console) error {
	return r.in(ctx, c, func(s dispatcher.Store) (*dispatcher.Rollback, error) {
		rollback, err := s.DeclareRollback(ctx, r.Reason, dispatcher.Change{Actor: "command line"})
		return &rollback, err
	})
}

// rollbackSkipCommand chooses to skip.
type rollbackSkipCommand struct{ rollbackFlags }

// Run notes the choice.
func (r *rollbackSkipCommand) Run(ctx context.Context, c console) error {
	return r.resolve(ctx, c, dispatcher.RollbackSkip)
}

// rollbackReplayCommand chooses to replay.
type rollbackReplayCommand struct{ rollbackFlags }

// Run notes the choice, and nodes go on.
func (r *rollbackReplayCommand) Run(ctx context.Context, c console) error {
	return r.resolve(ctx, c, dispatcher.RollbackReplay)
}
