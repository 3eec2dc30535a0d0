package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// bulkCommand applies one action to all jobs or runs that match a filter.
type bulkCommand struct {
	Start  bulkStartCommand  `cmd:"" help:"Do one thing to all jobs or runs of an app that the flags select, or count them." example:"carillon bulk start billing pause_jobs --label team=payments --dry-run"`
	List   bulkListCommand   `cmd:"" aliases:"ls" help:"List the bulk actions of an app, the latest first." example:"carillon bulk list billing"`
	Show   bulkShowCommand   `cmd:"" aliases:"describe" help:"Show a bulk action and how far it is." example:"carillon bulk show billing/1k2j9fq3c8g00"`
	Watch  bulkWatchCommand  `cmd:"" help:"Show how a bulk action goes on until it ends. Exit code 8: it was cancelled." example:"carillon bulk watch billing/1k2j9fq3c8g00"`
	Cancel bulkCancelCommand `cmd:"" help:"End a bulk action. What it has done stays done." example:"carillon bulk cancel billing/1k2j9fq3c8g00"`
}

// bulkFilterFlags select jobs or runs, like the filters of the console.
type bulkFilterFlags struct {
	Name   string            `placeholder:"TEXT" help:"Only jobs whose name contains this."`
	Host   string            `placeholder:"HOST" help:"Only jobs that call this host, function, group, queue or topic."`
	Label  map[string]string `mapsep:"," placeholder:"NAME=VALUE,..." help:"Only jobs that have all of these labels."`
	Result string            `placeholder:"STATE" help:"Only jobs whose latest run ended so, such as failed."`
	State  string            `placeholder:"STATE" help:"Only jobs or runs in this state. cancel_runs needs it."`
	Job    string            `placeholder:"JOB" help:"Only runs of this job."`
	Class  string            `placeholder:"CLASS" help:"Only dead letters whose last attempt failed in this way, such as http_5xx."`
	periodFlags
}

type bulkStartCommand struct {
	apiFlags
	outputFlags
	App    string `arg:"" help:"Name of the app."`
	Action string `arg:"" enum:"pause_jobs,resume_jobs,run_jobs,cancel_runs,retry_runs" help:"What to do: ${enum}. retry_runs retries dead letters."`
	bulkFilterFlags
	Reason string `help:"Why; the action shows it, and so do the pauses that it makes."`
	DryRun bool   `help:"Count what the flags select, and change nothing."`
	Yes    bool   `help:"Begin the action."`
	Expect *int   `placeholder:"N" help:"Begin nothing if the flags select another number than N, which --dry-run told."`
	Watch  bool   `help:"Wait until it ends, as bulk watch does."`
}

// Run counts the selection, or starts the action.
func (s *bulkStartCommand) Run(ctx context.Context, c console) error {
	if s.DryRun == s.Yes || s.DryRun && s.Watch {
		return &usageError{errors.New("give --dry-run to count what the action would change, or --yes to begin it; only with --yes, " +
			"--watch waits for its end")}
	}
	from, to, err := s.period(time.Now())
	if err != nil {
		return &usageError{err}
	}
	// The API checks which flags an action accepts.
	filter := repeat.BulkFilter{Name: s.Name, Host: s.Host, Labels: s.Label, Result: run.State(s.Result), State: s.State,
		Job: s.Job, Class: run.Class(s.Class), From: from, To: to}
	spec := repeat.BulkSpec{Action: repeat.BulkVerb(s.Action), Filter: filter, Reason: s.Reason}
	if err := spec.Validate(); err != nil {
		return &usageError{err}
	}
	api, err := s.ProvideClient(ctx)
	if err != nil {
		return err
	}
	if s.DryRun {
		count, err := api.CountBulk(ctx, s.App, spec)
		if err != nil {
			return err
		}
		return printObject(s.outputFlags, c, count, func(l *lines) { l.add("selected", countedOf(count)) })
	}
	begun, err := api.CreateBulkAction(ctx, s.App, repeat.BulkRequest{BulkSpec: spec, Expected: s.Expect})
	if err != nil {
		return err
	}
	if s.Watch {
		return watchBulk(ctx, c, api, s.outputFlags, begun)
	}
	return printObject(s.outputFlags, c, begun, func(l *lines) { showBulk(l, begun) })
}

// countedOf describes the number that a filter selects.
func countedOf(count repeat.BulkCount) string {
	if count.More {
		return fmt.Sprintf("more than %d", count.Total)
	}
	return fmt.Sprint(count.Total)
}

type bulkListCommand struct {
	apiFlags
	outputFlags
	App string `arg:"" help:"Name of the app."`
}

func (l *bulkListCommand) Run(ctx context.Context, c console, api *client.Client) error {
	all, _, err := allPages(0, func(page input.Page) (client.List[repeat.BulkAction], error) {
		return api.BulkActions(ctx, l.App, page)
	})
	if err != nil {
		return err
	}
	titles := "BULK ACTION\tACTION\tSTATE\tDONE\tSKIPPED\tSELECTED\tCREATED BY\tCREATED AT"
	return printList(l.outputFlags, c, all, titles, func(b repeat.BulkAction) []any {
		return []any{b.App + "/" + b.ID, b.Action, stateCell(b.State), b.Done, b.Skipped, countedOf(b.BulkCount), b.CreatedBy, b.CreatedAt}
	})
}

type bulkFlags struct {
	apiFlags
	outputFlags
	Bulk string `arg:"" name:"app/action" help:"The bulk action, such as billing/1k2j9fq3c8g00."`
}

// read reads the bulk action by one of the calls of a client.
func (f *bulkFlags) read(
	ctx context.Context, call func(*client.Client, context.Context, string, string) (repeat.BulkAction, error),
) (*client.Client, repeat.BulkAction, error) {
	api, app, id, err := f.named(ctx, f.Bulk, "APP/ACTION")
	if err != nil {
		return nil, repeat.BulkAction{}, err
	}
	found, err := call(api, ctx, app, id)
	return api, found, err
}

// show prints the bulk action that one of the calls of a client returns.
func (f *bulkFlags) show(
	ctx context.Context, c console, call func(*client.Client, context.Context, string, string) (repeat.BulkAction, error),
) error {
	_, found, err := f.read(ctx, call)
	if err != nil {
		return err
	}
	return printObject(f.outputFlags, c, found, func(l *lines) { showBulk(l, found) })
}

type bulkShowCommand struct{ bulkFlags }

func (s *bulkShowCommand) Run(ctx context.Context, c console) error {
	return s.show(ctx, c, (*client.Client).BulkAction)
}

type bulkCancelCommand struct{ bulkFlags }

func (s *bulkCancelCommand) Run(ctx context.Context, c console) error {
	return s.show(ctx, c, (*client.Client).CancelBulkAction)
}

func showBulk(l *lines, b repeat.BulkAction) {
	l.add("bulk action", b.App+"/"+b.ID)
	l.add("action", string(b.Action))
	for _, one := range []struct {
		name  string
		value any
	}{{"name", b.Filter.Name}, {"host", b.Filter.Host}, {"result", string(b.Filter.Result)}, {"state", b.Filter.State},
		{"job", b.Filter.Job}, {"class", string(b.Filter.Class)}} {
		l.add("only "+one.name, one.value)
	}
	if len(b.Filter.Labels) > 0 {
		l.add("only labels", b.Filter.Labels)
	}
	if !b.Filter.From.IsZero() {
		l.add("only from", b.Filter.From)
	}
	if !b.Filter.To.IsZero() {
		l.add("only to", b.Filter.To)
	}
	l.add("state", stateCell(b.State))
	l.add("waits", b.Waits)
	l.add("selected", countedOf(b.BulkCount))
	l.add("done", b.Done)
	l.add("skipped", b.Skipped)
	l.add("latest problem", b.Problem)
	l.add("reason", b.Reason)
	l.add("created", input.FormatInstant(b.CreatedAt)+" by "+b.CreatedBy)
	l.add("ended at", b.EndedAt)
}

// bulkWatchCommand waits for the end of a bulk action.
type bulkWatchCommand struct{ bulkFlags }

// Run prints the progress of the bulk action until it ends.
func (w *bulkWatchCommand) Run(ctx context.Context, c console) error {
	api, found, err := w.read(ctx, (*client.Client).BulkAction)
	if err != nil {
		return err
	}
	return watchBulk(ctx, c, api, w.outputFlags, found)
}

// watchBulk prints each change of a bulk action until it ends; with -o json, only its end.
func watchBulk(ctx context.Context, c console, api *client.Client, o outputFlags, b repeat.BulkAction) error {
	last, err := watched[repeat.BulkAction]{
		outputFlags: o, ended: func(b repeat.BulkAction) bool { return b.State.Ended() },
		line: func(b repeat.BulkAction) string { return fmt.Sprint(b.State, b.Done, b.Skipped, b.Waits) },
		show: func(b repeat.BulkAction) error {
			if o.Output != outputTable {
				return printObject(o, c, b, nil)
			}
			t := &table{}
			t.add(b.App+"/"+b.ID, b.Action, stateCell(b.State), fmt.Sprintf("%d done, %d skipped of %s", b.Done, b.Skipped, countedOf(b.BulkCount)),
				b.Waits)
			return t.show(c)
		},
		next: func(ctx context.Context) (repeat.BulkAction, error) { return api.BulkAction(ctx, b.App, b.ID) },
		left: func(repeat.BulkAction) error {
			return fmt.Errorf("bulk action %s/%s has not ended yet; go on with: carillon bulk watch %[1]s/%[2]s", b.App, b.ID)
		},
	}.watch(ctx, b)
	if err == nil && last.State == repeat.BulkCancelled {
		err = &negativeError{fmt.Errorf("bulk action %s/%s was cancelled after %d", last.App, last.ID, last.Done)}
	}
	return err
}
