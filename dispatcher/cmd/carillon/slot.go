package main

import (
	"cmp"
	"context"

	"github.com/carillon-dev/carillon/dispatcher"
)

// slotCommand shows the slots of jobs, and frees them.
type slotCommand struct {
	List    slotListCommand    `cmd:"" help:"List the runs that hold a slot of a job, or of an endpoint, with their nodes." example:"carillon slot list billing/invoices"`
	Release slotReleaseCommand `cmd:"" group:"operate" help:"Free the slots of a run that has ended. If its request is still in flight, another run may overlap with it." example:"carillon slot release 01k7zq8w0v2s9x4t6b3n5m7p1r"`
}

// slotListCommand lists the slots of one job.
type slotListCommand struct{ jobFlags }

// Run prints the slots.
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
		node := "-" // between two attempts
		if slot.Node != nil {
			node = slot.Node.String()
		}
		return []any{slot.Run, cmp.Or(slot.Endpoint, "-"), node, slot.Since}
	})
}

// slotReleaseCommand frees the slots of a run.
type slotReleaseCommand struct{ runFlags }

// Run frees them.
func (s *slotReleaseCommand) Run(ctx context.Context, c console) error {
	api, err := s.client(ctx)
	if err != nil {
		return err
	}
	run, err := api.ReleaseRun(ctx, s.ID)
	if err != nil {
		return err
	}
	return printRunLine(c, s.outputFlags, run)
}
