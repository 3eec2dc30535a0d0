package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/verify"
)

// apiFlags say which API a command talks to.
type apiFlags struct {
	Endpoint string `env:"CARILLON_ENDPOINT" default:"http://127.0.0.1:8080" placeholder:"URL" help:"Address of the API of any node."`
	Token    string `env:"CARILLON_TOKEN" required:"" help:"API token; scope read is enough to read. Set CARILLON_TOKEN instead of the flag: other users of the machine can see flags."`
}

func (a *apiFlags) client() (*client.Client, error) {
	c, err := client.New(a.Endpoint, a.Token, client.Options{UserAgent: "carillon/" + version})
	if err != nil {
		return nil, &usageError{fmt.Errorf("--endpoint: %w", err)}
	}
	return c, nil
}

// explainCommand explains one scheduled time.
type explainCommand struct {
	apiFlags
	Trigger string `arg:"" name:"app/job/trigger" help:"The trigger, such as billing/invoices/berlin."`
	Instant string `arg:"" help:"The scheduled time as RFC 3339, such as 2026-05-01T06:00:00+02:00."`
	JSON    bool   `help:"Print the API's response."`
}

// Run prints the decisions that led to the verdict. It fails if the ledger has nothing about a
// scheduled time.
func (e *explainCommand) Run(ctx context.Context, c console) error {
	names := strings.Split(e.Trigger, "/")
	if len(names) != 3 {
		return &usageError{fmt.Errorf("trigger %s is not APP/JOB/TRIGGER", dispatcher.Echo(e.Trigger))}
	}
	at, err := dispatcher.ParseInstant(e.Instant)
	if err != nil {
		return &usageError{err}
	}
	api, err := e.client()
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
		return errors.New("the ledger has nothing about this scheduled time")
	}
	return nil
}

func (e *explainCommand) print(c console, found verify.Explanation) error {
	if e.JSON {
		encoder := json.NewEncoder(c.out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(found)
	}
	fmt.Fprintf(c.out, "%s/%s/%s at %s\n%s: %s\n", found.App, found.Job, found.Trigger, dispatcher.FormatInstant(found.At), found.Verdict, found.Reason)
	for _, step := range found.Steps {
		fmt.Fprintf(c.out, "  %s  %s\n", dispatcher.FormatInstant(step.At), step.What)
	}
	if found.NextAt != nil {
		fmt.Fprintf(c.out, "next fire of that schedule: %s\n", dispatcher.FormatInstant(*found.NextAt))
	}
	return nil
}

// verifyCommand compares the ledger with the schedules.
type verifyCommand struct {
	apiFlags
	App  string `arg:"" help:"Name of the app."`
	From string `placeholder:"INSTANT" help:"First scheduled time as RFC 3339; default: the beginning of the history that is kept."`
	To   string `placeholder:"INSTANT" help:"Last scheduled time; default: now."`
}

// verifyPage is how many jobs one request asks for.
const verifyPage = 200

// Run prints one line for each trigger. It fails if schedule and ledger disagree at any time.
func (a *verifyCommand) Run(ctx context.Context, c console) error {
	query := verify.Query{App: a.App, Page: dispatcher.Page{Limit: verifyPage}}
	for text, into := range map[*string]*time.Time{&a.From: &query.From, &a.To: &query.To} {
		if *text == "" {
			continue
		}
		var err error
		if *into, err = dispatcher.ParseInstant(*text); err != nil {
			return &usageError{err}
		}
	}
	api, err := a.client()
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
			return a.print(c, totals)
		}
	}
}

// add joins the parts of a trigger's result.
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

func (a *verifyCommand) print(c console, totals map[string]*verify.Trigger) error {
	all := make([]*verify.Trigger, 0, len(totals))
	for _, one := range totals {
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b *verify.Trigger) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Trigger, b.Trigger))
	})
	unexplained := 0
	table := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "TRIGGER\tSCHEDULED\tRUNS\tMISFIRED\tOPEN\tUNEXPLAINED\tNOTE")
	for _, one := range all {
		fmt.Fprintf(table, "%s/%s\t%d\t%d\t%d\t%d\t%d\t%s\n", one.Job, one.Trigger, one.Scheduled, one.Runs, one.Misfired, one.Open, one.Unexplained, one.Unchecked)
		unexplained += one.Unexplained
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, one := range all {
		for _, d := range one.Discrepancies {
			fmt.Fprintf(c.out, "%s  %s  %s/%s/%s\n", d.Kind, dispatcher.FormatInstant(d.At), a.App, one.Job, one.Trigger)
		}
	}
	if unexplained > 0 {
		return fmt.Errorf("discrepancies between schedules and ledger: %d; carillon explain %s/JOB/TRIGGER TIME says more about each",
			unexplained, a.App)
	}
	return nil
}
