package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
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

// Run prints the chain of decisions. It fails if the ledger lacks a scheduled time that it should have.
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

// verifyCommand compares the ledger with the schedules.
type verifyCommand struct {
	apiFlags
	outputFlags
	App string `arg:"" help:"Name of the app."`
	periodFlags
}

// verifyPage is the number of jobs per request.
const verifyPage = 200

// Run prints one line per trigger, and fails if schedule and ledger disagree at a scheduled time,
// or if ended runs still hold resources.
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

// printLeaks prints the resources that ended runs still hold.
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

// misfireCommand shows misfire decisions.
type misfireCommand struct {
	List misfireListCommand `cmd:"" help:"List missed fires and what was decided about them, the latest first." example:"carillon misfire list --app billing --since 24h"`
}

// misfireListCommand lists misfire decisions.
type misfireListCommand struct {
	apiFlags
	outputFlags
	ledgerFlags
}

// Run prints the decisions.
func (m *misfireListCommand) Run(ctx context.Context, c console) error {
	query, err := m.query(time.Now())
	if err != nil {
		return err
	}
	api, err := m.client(ctx)
	if err != nil {
		return err
	}
	apps, err := appsOr(ctx, api, m.App)
	if err != nil {
		return err
	}
	var all []dispatcher.Misfire
	more, read := false, newProgress(c, "misfires")
	for _, app := range apps {
		query.App = app
		found, others, err := allPages(m.Limit, func(page input.Page) (client.List[dispatcher.Misfire], error) {
			query.Page = page
			return api.Misfires(ctx, query)
		})
		if err != nil {
			return err
		}
		all, more = append(all, found...), more || others
		read.say(len(all))
	}
	all = cut(c, all, m.Limit, more, func(one dispatcher.Misfire) time.Time { return one.DecidedAt })
	titles := "TRIGGER\tMISSED\tFROM\tTO\tDECISION\tDECIDED AT\tRUN\tREASON"
	return printList(m.outputFlags, c, all, titles, func(one dispatcher.Misfire) []any {
		return []any{fmt.Sprintf("%s/%s/%s", one.App, one.Job, one.Trigger), one.Count, one.From, one.To, one.Decision,
			one.DecidedAt, one.Run, one.Reason}
	})
}
