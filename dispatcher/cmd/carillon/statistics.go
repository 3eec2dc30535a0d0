package main

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// statisticsCommand shows what the runs of each day came to.
type statisticsCommand struct {
	apiFlags
	outputFlags
	App string `arg:"" optional:"" help:"Name of the app. Default: all that the token may see, together."`
	periodFlags
}

// Run prints the days.
func (s *statisticsCommand) Run(ctx context.Context, c console) error {
	from, to, err := s.period(time.Now())
	if err != nil {
		return &usageError{err}
	}
	api, err := s.client(ctx)
	if err != nil {
		return err
	}
	found, err := api.Statistics(ctx, s.App, from, to)
	if err != nil {
		return err
	}
	if s.Output != outputTable {
		return printObject(s.outputFlags, c, found, nil)
	}
	titles := "DAY\tSUCCEEDED\tFAILED\tTIMED OUT\tLOST\tCANCELLED\tSKIPPED\tSUPERSEDED\tMISFIRES\tATTEMPTS\tLATE MEAN\tLATE MOST\tFINAL"
	return printList(s.outputFlags, c, found.Days, titles, func(d view.DayStatistics) []any {
		return []any{d.Day, d.Runs[run.Succeeded], d.Runs[run.Failed], d.Runs[run.TimedOut],
			d.Runs[run.Lost], d.Runs[run.Cancelled], d.Runs[run.Skipped], d.Runs[run.Superseded],
			d.Misfires, d.Attempts, durationCell(d.LateMean), durationCell(d.LateMost), yesIf(d.Final)}
	})
}
