package main

import (
	"context"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher"
)

// rollbackCommand shows and resolves a rollback of the database, directly in the database.
type rollbackCommand struct {
	Show    rollbackShowCommand    `cmd:"" help:"Show whether the database was rolled back, and how that was detected."`
	Declare rollbackDeclareCommand `cmd:"" help:"Declare that the database was restored, before you start nodes that could not detect it."`
	Skip    rollbackSkipCommand    `cmd:"" help:"Mark all scheduled times up to now as skipped and live runs as lost, then resume. Nothing is sent twice."`
	Replay  rollbackReplayCommand  `cmd:"" help:"Resume from the restored state. Nothing is skipped; fires since the lost commits are repeated under the same event ids."`
}

// rollbackFlags name the database.
type rollbackFlags struct{ databaseFlag }

// print calls do with the store, and prints the rollback that it returns.
func (r *rollbackFlags) print(ctx context.Context, c console, do func(dispatcher.Store) (*dispatcher.Rollback, error)) error {
	var rollback *dispatcher.Rollback
	err := r.in(ctx, func(s dispatcher.Store) (err error) {
		rollback, err = do(s)
		return err
	})
	if err != nil {
		return err
	}
	if rollback == nil {
		_, err = fmt.Fprintln(c.out, "the database was not rolled back, as far as its nodes know")
		return err
	}
	state := "nodes are paused until you choose skip or replay"
	switch rollback.Choice {
	case dispatcher.RollbackSkip:
		state = "skip was chosen: a node carries it out in its next handler interval, then all nodes resume"
	case dispatcher.RollbackReplay:
		state = "replay was chosen: nodes resume with their next heartbeat"
	}
	_, err = fmt.Fprintf(c.out, "rolled back, detected at %s\nreason: %s\n%s\n", dispatcher.FormatInstant(rollback.At), rollback.Reason, state)
	return err
}

func (r *rollbackFlags) resolve(ctx context.Context, c console, choice dispatcher.RollbackChoice) error {
	return r.print(ctx, c, func(s dispatcher.Store) (*dispatcher.Rollback, error) {
		rollback, err := s.ResolveRollback(ctx, choice, dispatcher.Change{Actor: "command line"})
		return &rollback, err
	})
}

// rollbackShowCommand shows the rollback.
type rollbackShowCommand struct{ rollbackFlags }

// Run prints it.
func (r *rollbackShowCommand) Run(ctx context.Context, c console) error {
	return r.print(ctx, c, func(s dispatcher.Store) (*dispatcher.Rollback, error) { return s.Rollback(ctx) })
}

// rollbackDeclareCommand declares a rollback.
type rollbackDeclareCommand struct {
	rollbackFlags
	Reason string `default:"an operator has restored it" help:"What happened, for the audit log."`
}

// Run pauses all nodes, including new ones.
func (r *rollbackDeclareCommand) Run(ctx context.Context, c console) error {
	return r.print(ctx, c, func(s dispatcher.Store) (*dispatcher.Rollback, error) {
		rollback, err := s.DeclareRollback(ctx, r.Reason, dispatcher.Change{Actor: "command line"})
		return &rollback, err
	})
}

// rollbackSkipCommand chooses to skip.
type rollbackSkipCommand struct{ rollbackFlags }

// Run stores the choice.
func (r *rollbackSkipCommand) Run(ctx context.Context, c console) error {
	return r.resolve(ctx, c, dispatcher.RollbackSkip)
}

// rollbackReplayCommand chooses to replay.
type rollbackReplayCommand struct{ rollbackFlags }

// Run stores the choice; nodes resume.
func (r *rollbackReplayCommand) Run(ctx context.Context, c console) error {
	return r.resolve(ctx, c, dispatcher.RollbackReplay)
}
