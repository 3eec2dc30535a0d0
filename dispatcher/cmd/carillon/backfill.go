package main

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
)

// backfillCommand runs the scheduled times of past ranges.
type backfillCommand struct {
	Start  backfillStartCommand  `cmd:"" help:"Run the instants of a range, or count them." example:"carillon backfill start billing/invoices --from 2026-01-01T00:00:00Z --to 2026-01-31T23:59:59Z --dry-run"`
	List   backfillListCommand   `cmd:"" aliases:"ls" help:"List the backfills of an app or a job, the latest first." example:"carillon backfill list billing/invoices"`
	Show   backfillShowCommand   `cmd:"" aliases:"describe" help:"Show a backfill and how far it is." example:"carillon backfill show billing/1k2j9fq3c8g00"`
	Watch  backfillWatchCommand  `cmd:"" help:"Show how a backfill goes on until it ends. Exit code 8: not all of its runs succeeded." example:"carillon backfill watch billing/1k2j9fq3c8g00"`
	Pause  backfillPauseCommand  `cmd:"" help:"Queue no more runs of a backfill." example:"carillon backfill pause billing/1k2j9fq3c8g00"`
	Resume backfillResumeCommand `cmd:"" help:"Go on with a backfill that is paused." example:"carillon backfill resume billing/1k2j9fq3c8g00"`
	Cancel backfillCancelCommand `cmd:"" help:"End a backfill: its runs that wait are cancelled, those in flight end by themselves." example:"carillon backfill cancel billing/1k2j9fq3c8g00"`
}

type backfillStartCommand struct {
	jobFlags
	payloadFlags
	From        string         `required:"" placeholder:"INSTANT" help:"The first instant, inclusive: RFC 3339 with a time zone."`
	To          string         `required:"" placeholder:"INSTANT" help:"The last instant, inclusive; not in the future."`
	Trigger     string         `help:"The only trigger whose instants are run. Default: those of all triggers of the job."`
	Concurrency int            `default:"1" help:"How many of its runs are under way at once, 1 to 1000."`
	Order       string         `default:"oldest_first" enum:"oldest_first,latest_first" help:"Which instants go first: ${enum}."`
	Pace        input.Duration `default:"0s" help:"The shortest time between two runs, on average. 0s: as fast as runs end."`
	Existing    string         `default:"skip" enum:"skip,failed,run" help:"Instants of which the ledger has a run: skip leaves them out, failed runs them if none of these runs succeeded, run runs them."`
	Reason      string         `help:"Why; the backfill shows it."`
	DryRun      bool           `help:"Only count the instants, and those that already have runs."`
	Watch       bool           `help:"Wait until the backfill ends, as backfill watch does."`
}

// Run starts the backfill, or counts its scheduled times.
func (s *backfillStartCommand) Run(ctx context.Context, c console) error {
	spec, err := s.spec(c)
	if err != nil {
		return err
	}
	api, app, job, err := s.open(ctx)
	if err != nil {
		return err
	}
	if s.DryRun {
		count, err := api.CountBackfill(ctx, app, job, spec)
		if err != nil {
			return err
		}
		sayIfEmpty(c, count.Total)
		return printObject(s.outputFlags, c, count, func(l *lines) {
			l.add("instants", count.Total)
			l.add("first", count.First)
			l.add("last", count.Last)
			l.add("skipped", count.Skipped)
		})
	}
	begun, err := api.CreateBackfill(ctx, app, job, spec)
	if err != nil {
		return err
	}
	sayIfEmpty(c, begun.Total)
	if s.Watch {
		return watchBackfill(ctx, c, api, s.outputFlags, begun)
	}
	return printBackfill(c, s.outputFlags, begun)
}

// spec returns what the flags ask for.
func (s *backfillStartCommand) spec(c console) (spec repeat.BackfillSpec, err error) {
	spec = repeat.BackfillSpec{Trigger: s.Trigger, Concurrency: s.Concurrency, Order: repeat.BackfillOrder(s.Order),
		Pace: s.Pace, Existing: repeat.BackfillExisting(s.Existing), Reason: s.Reason}
	for _, one := range []struct {
		flag, text string
		into       *time.Time
	}{{"--from", s.From, &spec.From}, {"--to", s.To, &spec.To}} {
		if *one.into, err = time.Parse(time.RFC3339, one.text); err != nil {
			return spec, &usageError{fmt.Errorf("%s: %q is not an instant such as 2026-01-31T00:00:00Z", one.flag, one.text)}
		}
	}
	spec.Payload, err = s.read(c)
	return spec, err
}

// sayIfEmpty says why a backfill has nothing to do.
func sayIfEmpty(c console, total int) {
	if total == 0 {
		fmt.Fprintln(c.err, "carillon: no trigger of the job has an instant in this range; "+
			"intervals such as rate(5m) have none before they were declared")
	}
}

type backfillListCommand struct {
	apiFlags
	outputFlags
	Of string `arg:"" name:"app[/job]" help:"The app, such as billing, or a job, such as billing/invoices."`
}

func (l *backfillListCommand) Run(ctx context.Context, c console) error {
	app, job, _, err := cutOf(l.Of, "APP[/JOB]")
	if err != nil {
		return err
	}
	api, err := l.ProvideClient(ctx)
	if err != nil {
		return err
	}
	query := repeat.BackfillQuery{App: app, Job: job}
	all, _, err := allPages(0, func(page input.Page) (client.List[repeat.Backfill], error) {
		query.Page = page
		return api.Backfills(ctx, query)
	})
	if err != nil {
		return err
	}
	return printList(l.outputFlags, c, all, "BACKFILL\tJOB\tSTATE\tDONE\tFAILED\tFROM\tTO\tCREATED AT", func(b repeat.Backfill) []any {
		return []any{b.App + "/" + b.ID, b.Job, stateCell(b.State), doneOf(b), b.Failed, b.From, b.To, b.CreatedAt}
	})
}

func doneOf(b repeat.Backfill) string {
	return fmt.Sprintf("%d of %d", b.Queued+b.Skipped-b.Running, b.Total)
}

type backfillFlags struct {
	apiFlags
	outputFlags
	Backfill string `arg:"" name:"app/backfill" help:"The backfill, such as billing/1k2j9fq3c8g00."`
}

func (f *backfillFlags) get(ctx context.Context) (*client.Client, repeat.Backfill, error) {
	api, app, id, err := f.named(ctx, f.Backfill, "APP/BACKFILL")
	if err != nil {
		return nil, repeat.Backfill{}, err
	}
	found, err := api.Backfill(ctx, app, id)
	return api, found, err
}

func (f *backfillFlags) change(ctx context.Context, c console, action repeat.BackfillAction) error {
	api, app, id, err := f.named(ctx, f.Backfill, "APP/BACKFILL")
	if err != nil {
		return err
	}
	changed, err := api.ChangeBackfill(ctx, app, id, action)
	if err != nil {
		return err
	}
	return printBackfill(c, f.outputFlags, changed)
}

type backfillShowCommand struct{ backfillFlags }

func (s *backfillShowCommand) Run(ctx context.Context, c console) error {
	_, found, err := s.get(ctx)
	if err != nil {
		return err
	}
	return printObject(s.outputFlags, c, found, func(l *lines) {
		l.add("backfill", found.App+"/"+found.ID)
		l.add("job", found.App+"/"+found.Job)
		l.add("trigger", found.Trigger)
		l.add("from", found.From)
		l.add("to", found.To)
		l.add("state", stateCell(found.State))
		l.add("because", found.Error)
		l.add("waits", found.Waits)
		l.add("tries again at", found.TryAt)
		l.add("done", doneOf(found))
		l.add("running", found.Running)
		l.add("succeeded", found.Succeeded)
		l.add("failed", found.Failed)
		l.add("cancelled", found.Cancelled)
		l.add("left out", found.Skipped)
		l.add("reached", found.ReachedAt)
		l.add("concurrency", found.Concurrency)
		l.add("order", string(found.Order))
		if found.Pace != 0 {
			l.add("pace", found.Pace.String())
		}
		l.add("existing", string(found.Existing))
		l.add("payload", string(found.Payload))
		l.add("reason", found.Reason)
		l.add("created", input.FormatInstant(found.CreatedAt)+" by "+found.CreatedBy)
		l.add("ended at", found.EndedAt)
	})
}

type backfillWatchCommand struct{ backfillFlags }

// Run prints the progress of the backfill until it ends.
func (w *backfillWatchCommand) Run(ctx context.Context, c console) error {
	api, found, err := w.get(ctx)
	if err != nil {
		return err
	}
	return watchBackfill(ctx, c, api, w.outputFlags, found)
}

// watchBackfill prints each change of a backfill until it ends; with -o json, only its end.
func watchBackfill(ctx context.Context, c console, api *client.Client, o outputFlags, b repeat.Backfill) error {
	last, err := watched[repeat.Backfill]{
		outputFlags: o, ended: func(b repeat.Backfill) bool { return b.State.Ended() },
		line: func(b repeat.Backfill) string { return string(b.State) + doneOf(b) },
		show: func(b repeat.Backfill) error { return printBackfill(c, o, b) },
		next: func(ctx context.Context) (repeat.Backfill, error) { return api.Backfill(ctx, b.App, b.ID) },
		left: func(repeat.Backfill) error {
			return fmt.Errorf("backfill %s/%s has not ended yet; go on with: carillon backfill watch %[1]s/%[2]s", b.App, b.ID)
		},
	}.watch(ctx, b)
	if err == nil && (last.State != repeat.BackfillComplete || last.Failed+last.Cancelled > 0) {
		err = &negativeError{fmt.Errorf("backfill %s/%s is %s: %d of its runs failed and %d were cancelled", last.App, last.ID, last.State,
			last.Failed, last.Cancelled)}
	}
	return err
}

type backfillPauseCommand struct{ backfillFlags }

func (p *backfillPauseCommand) Run(ctx context.Context, c console) error {
	return p.change(ctx, c, repeat.PauseBackfill)
}

type backfillResumeCommand struct{ backfillFlags }

func (r *backfillResumeCommand) Run(ctx context.Context, c console) error {
	return r.change(ctx, c, repeat.ResumeBackfill)
}

type backfillCancelCommand struct{ backfillFlags }

func (r *backfillCancelCommand) Run(ctx context.Context, c console) error {
	return r.change(ctx, c, repeat.CancelBackfill)
}

// printBackfill prints a backfill; for people, as one line.
func printBackfill(c console, o outputFlags, b repeat.Backfill) error {
	if o.Output != outputTable {
		return printObject(o, c, b, nil)
	}
	t := &table{}
	t.add(b.App+"/"+b.ID, b.Job, stateCell(b.State), doneOf(b), fmt.Sprintf("%d failed", b.Failed))
	return t.show(c)
}
