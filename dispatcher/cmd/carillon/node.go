package main

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// nodeCommand lists and controls the nodes, directly in the database.
type nodeCommand struct {
	List   nodeListCommand   `cmd:"" help:"List the nodes with state, load, share and clock offset."`
	Pause  nodePauseCommand  `cmd:"" help:"Stop a node from claiming runs until it is resumed."`
	Resume nodeResumeCommand `cmd:"" help:"Let a paused node claim runs again."`
}

// nodeListCommand lists nodes.
type nodeListCommand struct {
	databaseFlag
}

// Run prints one line a node.
func (n *nodeListCommand) Run(ctx context.Context, c console) error {
	return n.in(ctx, func(s dispatcher.Store) error {
		nodes, err := s.Nodes(ctx)
		if err != nil {
			return err
		}
		table := newTable(c, "ID\tNAME\tVERSION\tSTATE\tSHARE\tFIRES/MIN\tIN FLIGHT\tLAG\tCLOCK OFFSET\tHEARTBEAT\tLABELS")
		for _, node := range nodes {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%.0f%%\t%d\t%d\t%s\t%s\t%s\t%s\n", node.ID, node.Name, node.Version, node.State,
				100*node.Share, node.Fires, node.InFlight, node.Lag, node.ClockOffset, node.HeartbeatAt.Format(time.RFC3339), node.Labels)
		}
		return table.Flush()
	})
}

// nodeFlags name one node of a database.
type nodeFlags struct {
	databaseFlag
	ID string `arg:"" help:"Id of the node, from carillon node list."`
}

// set puts the node into a state.
func (n *nodeFlags) set(ctx context.Context, c console, state dispatcher.NodeState) error {
	id, err := dispatcher.ParseNodeID(n.ID)
	if err != nil {
		return &usageError{fmt.Errorf("node %s: %w; ids are 16 hexadecimal digits", dispatcher.Echo(n.ID), err)}
	}
	return n.in(ctx, func(s dispatcher.Store) error {
		node, err := s.SetNodeState(ctx, id, state, dispatcher.Change{Actor: "command line"})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.out, "%s  %s  %s\n", node.ID, node.Name, node.State)
		return err
	})
}

// nodePauseCommand pauses a node.
type nodePauseCommand struct{ nodeFlags }

// Run pauses the node.
func (n *nodePauseCommand) Run(ctx context.Context, c console) error {
	return n.set(ctx, c, dispatcher.NodePaused)
}

// nodeResumeCommand resumes a node.
type nodeResumeCommand struct{ nodeFlags }

// Run resumes the node.
func (n *nodeResumeCommand) Run(ctx context.Context, c console) error {
	return n.set(ctx, c, dispatcher.NodeActive)
}
