package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/cmd/carillon/node"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store"
)

// rollbackCommand shows and resolves a rollback of the database. Declaring one needs only the database, and no node.
type rollbackCommand struct {
	Show    rollbackShowCommand    `cmd:"" aliases:"describe" help:"Show whether the database was rolled back, and how that was detected." example:"carillon rollback show"`
	Declare rollbackDeclareCommand `cmd:"" help:"Declare that the database was restored, before you start nodes that could not detect it." example:"carillon rollback declare --database postgres://carillon@db/carillon"`
	Skip    rollbackSkipCommand    `cmd:"" help:"Mark all scheduled times up to now as skipped and live runs as lost, then resume. Nothing is sent twice." example:"carillon rollback skip"`
	Replay  rollbackReplayCommand  `cmd:"" help:"Resume from the restored state. Nothing is skipped; fires since the lost commits are repeated under the same event ids." example:"carillon rollback replay"`
}

type rollbackFlags struct {
	apiFlags
	outputFlags
}

// printRollback prints a rollback, or that none is open if it is nil.
func printRollback(o outputFlags, c console, rollback *dispatcher.Rollback) error {
	if rollback == nil {
		return printSaid(o, c, rollback, "the database was not rolled back, as far as its nodes know")
	}
	state := "nodes are paused until you choose skip or replay"
	switch rollback.Choice {
	case dispatcher.RollbackSkip:
		state = "skip was chosen: a node carries it out in its next handler interval, then all nodes resume"
	case dispatcher.RollbackReplay:
		state = "replay was chosen: nodes resume with their next heartbeat"
	}
	return printSaid(o, c, rollback, fmt.Sprintf("rolled back, detected at %s\nreason: %s\n%s",
		input.FormatInstant(rollback.At), plain(rollback.Reason), state))
}

func (r *rollbackFlags) resolve(ctx context.Context, c console, choice dispatcher.RollbackChoice) error {
	api, err := r.ProvideClient(ctx)
	if err != nil {
		return err
	}
	rollback, err := api.ResolveRollback(ctx, choice)
	if err != nil {
		return err
	}
	return printRollback(r.outputFlags, c, &rollback)
}

type rollbackShowCommand struct{ rollbackFlags }

func (r *rollbackShowCommand) Run(ctx context.Context, c console, api *client.Client) error {
	rollback, err := api.Rollback(ctx)
	if errors.Is(err, dispatcher.ErrNotFound) {
		return printRollback(r.outputFlags, c, nil)
	}
	if err != nil {
		return err
	}
	return printRollback(r.outputFlags, c, &rollback)
}

type rollbackDeclareCommand struct {
	node.DatabaseFlag
	outputFlags
	Reason string `default:"an operator has restored it" help:"What happened, for the audit log."`
}

func (r *rollbackDeclareCommand) Validate() error { return r.Check() }

// Run pauses all nodes, including new ones.
func (r *rollbackDeclareCommand) Run(ctx context.Context, c console) error {
	return r.In(ctx, func(s *store.Store) error {
		rollback, err := s.DeclareRollback(ctx, r.Reason, byCommandLine())
		if err != nil {
			return err
		}
		return printRollback(r.outputFlags, c, &rollback)
	})
}

type rollbackSkipCommand struct{ rollbackFlags }

func (r *rollbackSkipCommand) Run(ctx context.Context, c console) error {
	return r.resolve(ctx, c, dispatcher.RollbackSkip)
}

type rollbackReplayCommand struct{ rollbackFlags }

// Run stores the choice; nodes resume.
func (r *rollbackReplayCommand) Run(ctx context.Context, c console) error {
	return r.resolve(ctx, c, dispatcher.RollbackReplay)
}
