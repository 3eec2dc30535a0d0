package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/verify"
)

// verifyCommand compares ledger and schedules.
type verifyCommand struct {
	apiFlags
	outputFlags
	App string `arg:"" help:"Name of the app."`
	periodFlags
}

// verifyPage is the number of jobs per request.
const verifyPage = 200

// Run prints one line per trigger, and fails if schedule and ledger disagree at a scheduled time, or something is held for runs
// that have ended.
func (v *verifyCommand) Run(ctx context.Context, c console) error {
	from, to, err := v.period(time.Now())
	if err != nil {
		return err
	}
	query := verify.Query{App: v.App, From: from, To: to, Page: input.Page{Limit: verifyPage}}
	api, err := v.client(ctx)
	if err != nil {
		return err
	}
	totals, seen := map[string]*verify.Trigger{}, newProgress(c, "triggers compared")
	var leaks []dispatcher.Leak
	for {
		page, err := api.Verify(ctx, query)
		if err != nil {
			return err
		}
		for _, part := range page.Items {
			add(totals, part)
		}
		leaks = append(leaks, page.Leaks...)
		seen.say(len(totals))
		if query.Page.Cursor = page.Next; page.Next == "" {
			return errors.Join(v.print(c, totals), v.printLeaks(c, leaks))
		}
	}
}

// add joins the pages of a trigger's verification.
func add(totals map[string]*verify.Trigger, part verify.Trigger) {
	name := part.Job + "/" + part.Trigger
	sum, known := totals[name]
	if !known {
		totals[name] = &part
		return
	}
	sum.Extend(part)
}

func (v *verifyCommand) print(c console, totals map[string]*verify.Trigger) error {
	all := make([]verify.Trigger, 0, len(totals))
	unexplained := 0
	for _, one := range totals {
		all = append(all, *one)
		unexplained += one.Unexplained
	}
	slices.SortFunc(all, func(a, b verify.Trigger) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Trigger, b.Trigger))
	})
	const columns = "TRIGGER\tSCHEDULED\tRUNS\tMISFIRED\tOPEN\tUNEXPLAINED\tBACKFILLED\tNOTE"
	err := printList(v.outputFlags, c, all, columns, func(one verify.Trigger) []any {
		return []any{one.Job + "/" + one.Trigger, one.Scheduled, one.Runs, one.Misfired, one.Open, one.Unexplained, one.Backfilled,
			one.Unchecked}
	})
	if err != nil {
		return err
	}
	for _, one := range all {
		for _, d := range one.Discrepancies {
			if v.Output == outputTable {
				fmt.Fprintf(c.out, "%s  %s  %s\n", d.Kind, input.FormatInstant(d.At), plain(v.App+"/"+one.Job+"/"+one.Trigger))
			}
		}
	}
	if unexplained > 0 {
		return &negativeError{fmt.Errorf("discrepancies between schedules and ledger: %d; "+
			"carillon explain %s/JOB/TRIGGER INSTANT says more about each", unexplained, v.App)}
	}
	return nil
}

// printLeaks prints what is held for runs that have ended.
func (v *verifyCommand) printLeaks(c console, leaks []dispatcher.Leak) error {
	if len(leaks) == 0 {
		return nil
	}
	for _, leak := range leaks {
		if v.Output != outputTable {
			break
		}
		line := string(leak.Kind) + "  " + v.App + "/" + leak.Job
		for _, more := range []string{leak.Run, leak.Of} {
			if more != "" {
				line += "  " + more
			}
		}
		if leak.Node != nil {
			line += "  on node " + leak.Node.String()
		}
		if leak.Since != nil {
			line += "  since " + input.FormatInstant(*leak.Since)
		}
		fmt.Fprintln(c.out, plain(line))
	}
	return &negativeError{fmt.Errorf("held for runs that have ended: %d, the first a %s of job %s/%s", len(leaks), leaks[0].Kind, v.App,
		leaks[0].Job)}
}
