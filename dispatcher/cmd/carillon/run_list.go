package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// ledgerFlags select entries of the ledger.
type ledgerFlags struct {
	App     string `placeholder:"APP" help:"Only of this app. Default: all that the token may see."`
	Job     string `placeholder:"JOB" help:"Only of this job; needs --app."`
	Trigger string `placeholder:"TRIGGER" help:"Only of this trigger; needs --job."`
	periodFlags
	Limit int `default:"100" help:"How many of the latest to show, 0 to 100000. 0: all."`
}

// query returns the query for the flags.
func (l ledgerFlags) query(now time.Time) (dispatcher.RunQuery, error) {
	var problems []error
	if l.Job != "" && l.App == "" || l.Trigger != "" && l.Job == "" {
		problems = append(problems, errors.New("--job needs --app, and --trigger needs --job"))
	}
	if l.Limit < 0 || l.Limit > 100_000 {
		problems = append(problems, fmt.Errorf("--limit: %d is not between 0 and 100000", l.Limit))
	}
	from, to, err := l.period(now)
	if err := errors.Join(append(problems, err)...); err != nil {
		return dispatcher.RunQuery{}, &usageError{err}
	}
	return dispatcher.RunQuery{App: l.App, Job: l.Job, Trigger: l.Trigger, From: from, To: to}, nil
}

// cut keeps the latest items of several lists, and reports whether others exist.
func cut[T any](c console, all []T, most int, more bool, at func(T) time.Time) []T {
	slices.SortStableFunc(all, func(a, b T) int { return at(b).Compare(at(a)) })
	if most > 0 && len(all) > most {
		all, more = all[:most], true
	}
	if more {
		fmt.Fprintf(c.err, "carillon: there are more; these are the latest %d. --limit shows others, --limit 0 all\n", len(all))
	}
	return all
}

// runListCommand lists runs.
type runListCommand struct {
	apiFlags
	outputFlags
	ledgerFlags
	State  []string `placeholder:"STATE,..." help:"Only runs in these states: queued, claimed, running, retrying, waiting_callback, waiting_shards, succeeded, failed, timed_out, cancelled, lost, superseded, skipped."`
	Failed bool     `help:"Only runs that failed, timed out or were lost."`
	Parent string   `placeholder:"RUN" help:"Only the shards of this broadcast, the highest index first."`
}

// states returns the states of the flags; one empty state stands for all.
func (r *runListCommand) states() ([]run.State, error) {
	var states []run.State
	for _, text := range r.State {
		state := run.State(text)
		if !slices.Contains(run.States, state) {
			return nil, &usageError{fmt.Errorf("--state: %s is none of %s", input.Echo(text), listed(run.States))}
		}
		states = append(states, state)
	}
	if r.Failed {
		states = append(states, run.Failed, run.TimedOut, run.Lost)
	}
	if len(states) == 0 {
		return []run.State{""}, nil
	}
	slices.Sort(states)
	return slices.Compact(states), nil
}

func listed[T ~string](values []T) string {
	var text []string
	for _, value := range values {
		text = append(text, string(value))
	}
	return strings.Join(text, ", ")
}

// Run prints the runs, latest scheduled time first.
func (r *runListCommand) Run(ctx context.Context, c console) error {
	query, err := r.query(time.Now())
	if err != nil {
		return err
	}
	states, err := r.states()
	if err != nil {
		return err
	}
	api, err := r.client(ctx)
	if err != nil {
		return err
	}
	apps, err := r.apps(ctx, api)
	if err != nil {
		return err
	}
	query.Parent = r.Parent
	var all []run.Run
	more, read := false, newProgress(c, "runs")
	for _, app := range apps {
		for _, state := range states {
			query.App, query.State = app, state
			runs, others, err := allPages(r.Limit, func(page input.Page) (client.List[run.Run], error) {
				query.Page = page
				return api.Runs(ctx, query)
			})
			if err != nil {
				return err
			}
			all, more = append(all, runs...), more || others
			read.say(len(all))
		}
	}
	if r.Parent != "" { // all have one scheduled time, by which cut sorts
		slices.SortFunc(all, func(a, b run.Run) int { return b.Shard.Index - a.Shard.Index })
	}
	all = cut(c, all, r.Limit, more, func(run run.Run) time.Time { return run.ScheduledAt })
	return printList(r.outputFlags, c, all, runTitles, runCells)
}

// apps returns the apps with runs to list. Shards are in the app of their parent.
func (r *runListCommand) apps(ctx context.Context, api *client.Client) ([]string, error) {
	if r.Parent == "" || r.App != "" {
		return appsOr(ctx, api, r.App)
	}
	parent, err := api.Run(ctx, r.Parent)
	return []string{parent.App}, err
}

// runTitles are the titles of runCells.
const runTitles = "RUN\tJOB\tSCHEDULED AT\tSTATE\tATTEMPT\tENDED AT\tERROR"

// runCells is a run in a line.
func runCells(run run.Run) []any {
	job := run.App + "/" + run.Job
	if run.Trigger != "" {
		job += "/" + run.Trigger
	}
	why := strings.TrimSpace(fmt.Sprintf("%s %s", run.Class, run.Error))
	if waits := run.Waiting(); waits != "" {
		why = strings.TrimPrefix(waits+"; "+why, "; ")
	}
	return []any{run.ID, job, run.ScheduledAt, stateCell(run.State), run.Attempt, run.EndedAt, strings.TrimSuffix(why, "; ")}
}

// waitFlags make a command wait for the end of a run.
type waitFlags struct {
	Wait    bool           `help:"Wait until the run ends. Exit code 8: it did not succeed."`
	Timeout input.Duration `default:"0s" help:"With --wait: how long to wait at most; the run goes on. 0s: until it ends."`
}

// finish prints a run, at once or with --wait after its end.
func (w waitFlags) finish(ctx context.Context, c console, api *client.Client, o outputFlags, run run.Run) error {
	if !w.Wait {
		return printRunLine(c, o, run)
	}
	fmt.Fprintf(c.err, "carillon: waiting for run %s\n", run.ID)
	return o.watchRun(ctx, c, api, run, w.Timeout)
}

// runWatchCommand waits for the end of a run.
type runWatchCommand struct {
	runFlags
	Timeout input.Duration `default:"0s" help:"How long to wait at most; the run goes on. 0s: until it ends."`
}

// Run prints each change of the run until it ends.
func (w *runWatchCommand) Run(ctx context.Context, c console) error {
	api, err := w.client(ctx)
	if err != nil {
		return err
	}
	run, err := api.Run(ctx, w.ID)
	if err != nil {
		return err
	}
	return w.watchRun(ctx, c, api, run, w.Timeout)
}

// watchRun prints each change of a run until it ends; with -o json, only its end.
func (o outputFlags) watchRun(ctx context.Context, c console, api *client.Client, r run.Run, most input.Duration) error {
	if most > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, most.Std())
		defer cancel()
	}
	var shown run.Run
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		final := hasEnded(r)
		if changed := r.State != shown.State || r.Attempt != shown.Attempt; changed && (final || o.Output != outputJSON) {
			if err := printRunLine(c, o, r); err != nil {
				return err
			}
			shown, wait = r, 100*time.Millisecond
		}
		if final {
			return judge(r)
		}
		pause(ctx, wait)
		next, err := api.Run(ctx, r.ID)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("run %s has not ended yet, it is %s; go on with: carillon run watch %s", r.ID, r.State, r.ID)
		case err != nil:
			return err
		}
		r = next
	}
}

// hasEnded reports whether a run is final, unless someone repeats it.
func hasEnded(r run.Run) bool {
	return slices.Index(run.States, r.State) >= slices.Index(run.States, run.Succeeded)
}

// judge returns an error if a run ended without success.
func judge(r run.Run) error {
	if r.State == run.Succeeded {
		return nil
	}
	return &negativeError{fmt.Errorf("run %s ended as %s: carillon run show %s says more", r.ID, r.State, r.ID)}
}
