package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"
)

// slotCommand shows the slots of jobs, directly from the database.
type slotCommand struct {
	List slotListCommand `cmd:"" help:"List the runs that hold a slot of a job, with their nodes."`
}

// slotListCommand lists the slots of one job.
type slotListCommand struct {
	databaseFlag
	App string `arg:"" help:"Name of the app."`
	Job string `arg:"" help:"Name of the job."`
}

// Run prints one line a slot.
func (l *slotListCommand) Run(ctx context.Context, c console) error {
	s, err := openDatabase(ctx, l.Database)
	if err != nil {
		return err
	}
	defer s.Close()
	slots, err := s.Slots(ctx, l.App, l.Job)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "RUN\tNODE\tSINCE")
	for _, slot := range slots {
		node := "-" // between two attempts
		if slot.Node != nil {
			node = slot.Node.String()
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", slot.Run, node, slot.Since.Format(time.RFC3339))
	}
	return table.Flush()
}
