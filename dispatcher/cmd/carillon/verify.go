package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/verify"
)

// verifyCommand compares ledger and schedules.
type verifyCommand struct {
	apiFlags
	App  string `arg:"" help:"Name of the app."`
	From string `placeholder:"INSTANT" help:"First scheduled time, in RFC 3339. Default: the beginning of the history."`
	To   string `placeholder:"INSTANT" help:"Last scheduled time. Default: now."`
}

// verifyPage is the number of jobs per request.
const verifyPage = 200

// Run prints one line per trigger, and fails if schedule and ledger disagree at a scheduled time.
func (v *verifyCommand) Run(ctx context.Context, c console) error {
	query := verify.Query{App: v.App, Page: dispatcher.Page{Limit: verifyPage}}
	for text, into := range map[*string]*time.Time{&v.From: &query.From, &v.To: &query.To} {
		if *text == "" {
			continue
		}
		var err error
		if *into, err = dispatcher.ParseInstant(*text); err != nil {
			return &usageError{err}
		}
	}
	api, err := v.client()
	if err != nil {
		return err
	}
	totals := map[string]*verify.Trigger{}
	for {
		page, err := api.Verify(ctx, query)
		if err != nil {
			return err
		}
		for _, part := range page.Items {
			add(totals, part)
		}
		if query.Page.Cursor = page.Next; page.Next == "" {
			return v.print(c, totals)
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
	sum.To = part.To
	sum.Scheduled, sum.Runs, sum.Misfired = sum.Scheduled+part.Scheduled, sum.Runs+part.Runs, sum.Misfired+part.Misfired
	sum.Open, sum.Unexplained = sum.Open+part.Open, sum.Unexplained+part.Unexplained
	sum.Discrepancies = append(sum.Discrepancies, part.Discrepancies...)
	sum.Unchecked = cmp.Or(sum.Unchecked, part.Unchecked)
}

func (v *verifyCommand) print(c console, totals map[string]*verify.Trigger) error {
	all := slices.SortedFunc(maps.Values(totals), func(a, b *verify.Trigger) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Trigger, b.Trigger))
	})
	unexplained := 0
	table := newTable(c, "TRIGGER\tSCHEDULED\tRUNS\tMISFIRED\tOPEN\tUNEXPLAINED\tNOTE")
	for _, one := range all {
		fmt.Fprintf(table, "%s/%s\t%d\t%d\t%d\t%d\t%d\t%s\n", one.Job, one.Trigger,
			one.Scheduled, one.Runs, one.Misfired, one.Open, one.Unexplained, one.Unchecked)
		unexplained += one.Unexplained
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, one := range all {
		for _, d := range one.Discrepancies {
			fmt.Fprintf(c.out, "%s  %s  %s/%s/%s\n", d.Kind, dispatcher.FormatInstant(d.At), v.App, one.Job, one.Trigger)
		}
	}
	if unexplained > 0 {
		return fmt.Errorf("discrepancies between schedules and ledger: %d; carillon explain %s/JOB/TRIGGER INSTANT says more about each",
			unexplained, v.App)
	}
	return nil
}
