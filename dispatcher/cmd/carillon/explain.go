package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/verify"
)

// explainCommand explains one scheduled time.
type explainCommand struct {
	apiFlags
	outputFlags
	Trigger string `arg:"" name:"app/job/trigger" help:"The trigger, such as billing/invoices/berlin."`
	Instant string `arg:"" help:"The scheduled time in RFC 3339, such as 2026-05-01T06:00:00+02:00."`
}

// Run prints the chain of decisions. It fails if the ledger should know the scheduled time but does not.
func (e *explainCommand) Run(ctx context.Context, c console) error {
	names := strings.Split(e.Trigger, "/")
	if len(names) != 3 {
		return &usageError{fmt.Errorf("trigger %s is not APP/JOB/TRIGGER", input.Echo(e.Trigger))}
	}
	at, err := input.ParseInstant(e.Instant)
	if err != nil {
		return &usageError{err}
	}
	api, err := e.client(ctx)
	if err != nil {
		return err
	}
	found, err := api.Explain(ctx, names[0], names[1], names[2], at)
	if err != nil {
		return err
	}
	if err := e.print(c, found); err != nil {
		return err
	}
	if found.Verdict == verify.VerdictMissing {
		return &negativeError{errors.New("the scheduled time has neither a run nor a decision")}
	}
	return nil
}

func (e *explainCommand) print(c console, found verify.Explanation) error {
	if e.Output != outputTable {
		return printObject(e.outputFlags, c, found, nil)
	}
	fmt.Fprintf(c.out, "%s/%s/%s at %s\n%s: %s\n", plain(found.App), plain(found.Job), plain(found.Trigger),
		input.FormatInstant(found.At), found.Verdict, plain(found.Reason))
	for _, step := range found.Steps {
		fmt.Fprintf(c.out, "  %s  %s\n", input.FormatInstant(step.At), plain(step.What))
	}
	if found.NextAt != nil {
		fmt.Fprintf(c.out, "next fire: %s\n", input.FormatInstant(*found.NextAt))
	}
	return nil
}
