package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	webconsole "github.com/carillon-dev/carillon/dispatcher/console"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

type nodeCommand struct {
	List   nodeListCommand   `cmd:"" aliases:"ls" help:"List the nodes with state, load, share and clock offset." example:"carillon node list"`
	Pause  nodePauseCommand  `cmd:"" help:"Stop a node from claiming runs until it is resumed." example:"carillon node pause 017bf3d1bf2ea5bd"`
	Resume nodeResumeCommand `cmd:"" help:"Let a paused node claim runs again." example:"carillon node resume 017bf3d1bf2ea5bd"`
	Drain  nodeDrainCommand  `cmd:"" help:"Let a node end its runs and then its process." example:"carillon node drain 017bf3d1bf2ea5bd"`
}

type nodeListCommand struct {
	apiFlags
	outputFlags
}

func (n *nodeListCommand) Run(ctx context.Context, c console, api *client.Client) error {
	nodes, err := api.Nodes(ctx)
	if err != nil {
		return err
	}
	texts, err := webconsole.English()
	if err != nil {
		return err
	}
	examined := map[run.NodeID]view.NodeAttention{}
	for _, node := range view.Examine(nodes.Items, time.Now()) {
		examined[node.ID] = node
	}
	titles := "ID\tNAME\tVERSION\tZONES\tSTATE\tSHARE\tFIRES/MIN\tIN FLIGHT\tLAG\tCLOCK OFFSET\tHEARTBEAT\tLABELS"
	return printList(n.outputFlags, c, nodes.Items, titles, func(node dispatcher.Node) []any {
		state := texts.Word("state.", examined[node.ID].Shown())
		if node.SilentFor > 0 {
			state += fmt.Sprintf(" for %s", node.SilentFor.Std().Round(time.Second))
		}
		return []any{node.ID, node.Name, node.Version, node.Zones, stateCell(state), fmt.Sprintf("%.0f%%", 100*node.Share), node.Fires,
			node.InFlight, node.Lag, node.ClockOffset, node.HeartbeatAt, node.Labels}
	})
}

type nodeFlags struct {
	apiFlags
	outputFlags
	ID string `arg:"" help:"Id of the node, from carillon node list."`
}

func (n *nodeFlags) set(ctx context.Context, c console, state dispatcher.NodeState) error {
	id, err := run.ParseNodeID(n.ID)
	if err != nil {
		return &usageError{fmt.Errorf("node %s: %w; ids are 16 hexadecimal digits", input.Echo(n.ID), err)}
	}
	api, err := n.ProvideClient(ctx)
	if err != nil {
		return err
	}
	node, err := api.SetNodeState(ctx, id, state)
	if err != nil {
		return err
	}
	return printObject(n.outputFlags, c, node, func(l *lines) {
		l.add("node", node.ID)
		l.add("name", node.Name)
		l.add("state", stateCell(node.State))
		l.add("in flight", node.InFlight)
	})
}

type nodePauseCommand struct{ nodeFlags }

func (n *nodePauseCommand) Run(ctx context.Context, c console) error {
	return n.set(ctx, c, dispatcher.NodePaused)
}

type nodeResumeCommand struct{ nodeFlags }

func (n *nodeResumeCommand) Run(ctx context.Context, c console) error {
	return n.set(ctx, c, dispatcher.NodeActive)
}

type nodeDrainCommand struct{ nodeFlags }

func (n *nodeDrainCommand) Run(ctx context.Context, c console) error {
	return n.set(ctx, c, dispatcher.NodeDraining)
}

// slotCommand shows the slots of jobs, and frees them.
type slotCommand struct {
	List    slotListCommand    `cmd:"" aliases:"ls" help:"List the runs that hold a slot of a job, or of an endpoint, with their nodes." example:"carillon slot list billing/invoices"`
	Release slotReleaseCommand `cmd:"" group:"operate" help:"Free the slot of a job whose run has ended. If its request is still in flight, another run may overlap with it." example:"carillon slot release billing/invoices --reason \"node is frozen\""`
}

type slotListCommand struct{ jobFlags }

func (s *slotListCommand) Run(ctx context.Context, c console) error {
	api, app, job, err := s.open(ctx)
	if err != nil {
		return err
	}
	slots, err := api.Slots(ctx, app, job)
	if err != nil {
		return err
	}
	return printList(s.outputFlags, c, slots.Items, "RUN\tENDPOINT\tNODE\tSINCE", func(slot dispatcher.Slot) []any {
		node := "-" // between attempts
		if slot.Node != nil {
			node = slot.Node.String()
		}
		return []any{slot.Run, cmp.Or(slot.Endpoint, "-"), node, slot.Since}
	})
}

type slotReleaseCommand struct {
	jobFlags
	Reason string `required:"" placeholder:"TEXT" help:"Why, for the audit log."`
	RunID  string `name:"run" placeholder:"RUN" help:"The run that has the slot. Default: the only one that has a slot of the job."`
	Cancel bool   `help:"If the run has not ended, cancel it and free its slot at once, although its target may go on working: two runs may be at work at once."`
}

func (s *slotReleaseCommand) Run(ctx context.Context, c console) error {
	api, app, job, err := s.open(ctx)
	if err != nil {
		return err
	}
	released, err := api.ReleaseSlot(ctx, app, job, run.SlotRelease{Run: s.RunID, Reason: s.Reason, Cancel: s.Cancel})
	if err != nil {
		return err
	}
	return printRunLine(c, s.outputFlags, released, false)
}
