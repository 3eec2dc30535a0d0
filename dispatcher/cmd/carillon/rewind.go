package main

import (
	"context"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher"
)

// rewindCommand shows and settles a rewind, directly in the database.
type rewindCommand struct {
	Show    rewindShowCommand    `cmd:"" help:"Tell whether the database was rewound, and by what that was noticed."`
	Declare rewindDeclareCommand `cmd:"" help:"Say that the database was restored, before nodes are started over it, where they could not notice it."`
	Skip    rewindSkipCommand    `cmd:"" help:"Settle all instants up to now as skipped and end as lost what was under way, then let nodes go on: nothing is sent twice."`
	Replay  rewindReplayCommand  `cmd:"" help:"Let nodes go on as the database has it: nothing is left out, and what had fired since fires again under the same event ids."`
}

// rewindFlags name a database.
type rewindFlags struct{ databaseFlag }

// in does something with the store, and prints the rewind that it returns.
func (r *rewindFlags) in(ctx context.Context, c console, do func(dispatcher.Store) (*dispatcher.Rewind, error)) error {
	s, err := openBeside(ctx, r.Database)
	if err != nil {
		return err
	}
	defer s.Close()
	rewind, err := do(s)
	if err != nil {
		return err
	}
	if rewind == nil {
		_, err = fmt.Fprintln(c.out, "the database was not rewound, as far as its nodes know")
		return err
	}
	state := "nodes are paused until skip or replay is chosen"
	switch rewind.Choice {
	case dispatcher.RewindSkip:
		state = "skip was chosen: a node carries it out in its next round, then nodes go on"
	case dispatcher.RewindReplay:
		state = "replay was chosen: nodes go on with their next heartbeat"
	}
	_, err = fmt.Fprintf(c.out, "rewound, noticed at %s\nreason: %s\n%s\n", dispatcher.FormatInstant(rewind.At), rewind.Reason, state)
	return err
}

func (r *rewindFlags) resolve(ctx context.Context, c console, choice dispatcher.RewindChoice) error {
	return r.in(ctx, c, func(s dispatcher.Store) (*dispatcher.Rewind, error) {
		rewind, err := s.ResolveRewind(ctx, choice, dispatcher.Change{Actor: "command line"})
		return &rewind, err
	})
}

// rewindShowCommand shows a rewind.
type rewindShowCommand struct{ rewindFlags }

// Run prints it.
func (r *rewindShowCommand) Run(ctx context.Context, c console) error {
	return r.in(ctx, c, func(s dispatcher.Store) (*dispatcher.Rewind, error) { return s.Rewind(ctx) })
}

// rewindDeclareCommand declares a rewind.
type rewindDeclareCommand struct {
	rewindFlags
	Reason string `default:"an operator has restored it" help:"What happened, for the audit."`
}

// Run pauses all nodes, and those to come.
func (r *rewindDeclareCommand) Run(ctx context.Context, c console) error {
	return r.in(ctx, c, func(s dispatcher.Store) (*dispatcher.Rewind, error) {
		rewind, err := s.DeclareRewind(ctx, r.Reason, dispatcher.Change{Actor: "command line"})
		return &rewind, err
	})
}

// rewindSkipCommand chooses to skip.
type rewindSkipCommand struct{ rewindFlags }

// Run notes the choice.
func (r *rewindSkipCommand) Run(ctx context.Context, c console) error {
	return r.resolve(ctx, c, dispatcher.RewindSkip)
}

// rewindReplayCommand chooses to replay.
type rewindReplayCommand struct{ rewindFlags }

// Run notes the choice, and nodes go on.
func (r *rewindReplayCommand) Run(ctx context.Context, c console) error {
	return r.resolve(ctx, c, dispatcher.RewindReplay)
}
