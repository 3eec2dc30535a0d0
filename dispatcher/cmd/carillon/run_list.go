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

type ledgerFlags struct {
	ofFlags
	periodFlags
	Limit int `default:"100" help:"How many of the latest to show, 0 to 100000. 0: all."`
}

func (l ledgerFlags) query(now time.Time) (dispatcher.RunQuery, error) {
	var problems []error
	app, job, trigger, err := l.names()
	if err != nil {
		problems = append(problems, err)
	}
	if l.Limit < 0 || l.Limit > 100_000 {
		problems = append(problems, fmt.Errorf("--limit: %d is not between 0 and 100000", l.Limit))
	}
	from, to, err := l.period(now)
	if err := errors.Join(append(problems, err)...); err != nil {
		return dispatcher.RunQuery{}, &usageError{err}
	}
	return dispatcher.RunQuery{App: app, Job: job, Trigger: trigger, From: from, To: to}, nil
}

// latestByDefault is the default of --limit. People who give another number do not need to be told that there are more.
const latestByDefault = 100

// newest are the latest items of several lists, such as those of apps.
type newest[T any] struct {
	what string // the items, as the progress calls them
	most int    // 0: all
	at   func(T) time.Time
	page func(list string, page input.Page) (client.List[T], error)
}

// of reads the latest items of lists, and says if there are more.
func (n newest[T]) of(c console, lists []string) (all []T, err error) {
	more, read := false, newProgress(c, n.what)
	for _, list := range lists {
		found, others, err := allPages(n.most, func(page input.Page) (client.List[T], error) { return n.page(list, page) })
		if err != nil {
			return nil, err
		}
		all, more = append(all, found...), more || others
		read.say(len(all))
	}
	slices.SortStableFunc(all, func(a, b T) int { return n.at(b).Compare(n.at(a)) })
	if n.most > 0 && len(all) > n.most {
		all, more = all[:n.most], true
	}
	if more && n.most == latestByDefault {
		fmt.Fprintf(c.err, "carillon: there are more; these are the latest %d. --limit shows others, --limit 0 all\n", len(all))
	}
	return all, nil
}

// ofApps reads the latest items of an app; empty: of all that the token may see.
func (n newest[T]) ofApps(ctx context.Context, c console, api *client.Client, app string) ([]T, error) {
	apps, err := appsOr(ctx, api, app)
	if err != nil {
		return nil, err
	}
	return n.of(c, apps)
}

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
			return nil, &usageError{fmt.Errorf("--state: %s is %s", input.Echo(text), input.NotOneOf(state, run.States))}
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

// Run prints the runs, latest scheduled time first.
func (r *runListCommand) Run(ctx context.Context, c console) error {
	query, err := r.query(time.Now())
	if err != nil {
		return err
	}
	api, err := r.ProvideClient(ctx)
	if err != nil {
		return err
	}
	lists, err := r.lists(ctx, api, query.App)
	if err != nil {
		return err
	}
	query.Parent = r.Parent
	runs := newest[run.Run]{"runs", r.Limit, func(run run.Run) time.Time { return run.ScheduledAt },
		func(list string, page input.Page) (client.List[run.Run], error) {
			app, state, _ := strings.Cut(list, "/")
			query.App, query.State, query.Page = app, run.State(state), page
			return api.Runs(ctx, query)
		}}
	all, err := runs.of(c, lists)
	if err != nil {
		return err
	}
	if r.Parent != "" { // all have one scheduled time
		slices.SortFunc(all, func(a, b run.Run) int { return b.Shard.Index - a.Shard.Index })
	}
	return printList(r.outputFlags, c, all, runTitles, runCells)
}

// lists returns the lists to merge: one for each app and state, as APP/STATE.
func (r *runListCommand) lists(ctx context.Context, api *client.Client, app string) (lists []string, err error) {
	states, err := r.states()
	if err != nil {
		return nil, err
	}
	apps, err := r.apps(ctx, api, app)
	for _, app := range apps {
		for _, state := range states {
			lists = append(lists, app+"/"+string(state))
		}
	}
	return lists, err
}

// apps returns the apps with runs to list. Shards are in the app of their parent.
func (r *runListCommand) apps(ctx context.Context, api *client.Client, app string) ([]string, error) {
	if r.Parent == "" || app != "" {
		return appsOr(ctx, api, app)
	}
	parent, err := api.Run(ctx, r.Parent)
	return []string{parent.App}, err
}

// runTitles are the titles of runCells.
const runTitles = "RUN\tJOB\tSCHEDULED AT\tSTATE\tATTEMPT\tENDED AT\tERROR"

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
		return printRunLine(c, o, run, false)
	}
	fmt.Fprintf(c.err, "carillon: waiting for run %s\n", run.ID)
	return o.watchRun(ctx, c, api, run, w.Timeout)
}

type runWatchCommand struct {
	runFlags
	Timeout input.Duration `default:"0s" help:"How long to wait at most; the run goes on. 0s: until it ends."`
}

// Run prints each change of the run until it ends.
func (w *runWatchCommand) Run(ctx context.Context, c console, api *client.Client) error {
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
	titled := false
	last, err := watched[run.Run]{
		outputFlags: o, ended: hasEnded,
		line: func(r run.Run) string { return fmt.Sprint(r.State, r.Attempt) },
		show: func(r run.Run) error {
			defer func() { titled = true }()
			return printRunLine(c, o, r, titled)
		},
		next: func(ctx context.Context) (run.Run, error) { return api.Run(ctx, r.ID) },
		left: func(r run.Run) error {
			return fmt.Errorf("run %s has not ended yet, it is %s; go on with: carillon run watch %s", r.ID, r.State, r.ID)
		},
	}.watch(ctx, r)
	if err != nil {
		return err
	}
	if last.State == run.Succeeded {
		return nil
	}
	return &negativeError{fmt.Errorf("run %s ended as %s: carillon run show %s says more", last.ID, last.State, last.ID)}
}

// watched is a run, a backfill or a bulk action that a command waits for.
type watched[T any] struct {
	outputFlags
	line  func(T) string // differs after a change
	ended func(T) bool
	show  func(T) error
	next  func(context.Context) (T, error)
	left  func(T) error // the error if it goes on when the command ends
}

// watch prints each change until the end, and returns that; with -o json, it prints only the end.
func (w watched[T]) watch(ctx context.Context, one T) (last T, err error) {
	shown := ""
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		if line := w.line(one); line != shown && (w.ended(one) || w.Output != outputJSON) {
			if err := w.show(one); err != nil {
				return one, err
			}
			shown = line
		}
		if w.ended(one) {
			return one, nil
		}
		pause(ctx, wait)
		next, err := w.next(ctx)
		switch {
		case ctx.Err() != nil:
			return one, w.left(one)
		case err != nil:
			return one, err
		}
		one = next
	}
}

// hasEnded reports whether a run is final, unless someone repeats it.
func hasEnded(r run.Run) bool {
	return slices.Index(run.States, r.State) >= slices.Index(run.States, run.Succeeded)
}
