package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// jobStripCommand shows the scheduled times of a trigger in a row.
type jobStripCommand struct {
	apiFlags
	outputFlags
	Trigger string `arg:"" name:"app/job/trigger" help:"The trigger, such as billing/invoices/berlin."`
	Past    int    `default:"60" help:"How many of the latest scheduled times to show, 0 to 200."`
	Next    int    `default:"20" help:"How many of the coming ones to show, 0 to 100."`
}

// Run prints the strip. It fails if the ledger should know a scheduled time but does not.
func (s *jobStripCommand) Run(ctx context.Context, c console) error {
	names, err := cutPath(s.Trigger, "APP/JOB/TRIGGER", 3)
	if err != nil {
		return err
	}
	if s.Past < 0 || s.Past > view.MostStripPast || s.Next < 0 || s.Next > view.MostStripNext || s.Past+s.Next == 0 {
		return &usageError{fmt.Errorf("--past is 0 to %d and --next is 0 to %d; one of them is not 0", view.MostStripPast,
			view.MostStripNext)}
	}
	api, err := s.client(ctx)
	if err != nil {
		return err
	}
	strip, err := api.Strip(ctx, names[0], names[1], names[2], s.Past, s.Next)
	if err != nil {
		return err
	}
	if err := s.print(c, strip); err != nil {
		return err
	}
	for _, cell := range strip.Cells {
		if cell.What == view.CellMissing {
			return &negativeError{errors.New("a scheduled time has neither a run nor a decision")}
		}
	}
	return nil
}

func (s *jobStripCommand) print(c console, strip view.Strip) error {
	if s.Output != outputTable {
		return printObject(s.outputFlags, c, strip, nil)
	}
	if strip.Incomplete != "" {
		fmt.Fprintf(c.err, "carillon: there may be more scheduled times: %s\n", plain(strip.Incomplete))
	}
	return printList(s.outputFlags, c, strip.Cells, "SCHEDULED AT\tWHAT\tSTATE\tLATE\tTOOK\tRUN\tWHY", func(cell view.StripCell) []any {
		at := input.FormatInstant(cell.ScheduledAt)
		if cell.Until != nil {
			at += " to " + input.FormatInstant(*cell.Until)
		}
		state := string(cell.State)
		if cell.Decision != "" {
			state = string(cell.Decision)
		}
		return []any{at, string(cell.What), stateCell(state), durationCell(cell.Late), durationCell(cell.Took), cell.Run, cell.Why}
	})
}

// durationCell is a duration, or empty if it is not known.
func durationCell(d input.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}
