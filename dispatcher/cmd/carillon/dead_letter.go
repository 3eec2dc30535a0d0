package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// deadLetterCommand shows and replays runs that failed for good.
type deadLetterCommand struct {
	List   deadLetterListCommand   `cmd:"" aliases:"ls" help:"List runs that failed, timed out or were lost, the latest first." example:"carillon dead-letter list billing --class http_5xx --since 24h"`
	Replay deadLetterReplayCommand `cmd:"" group:"operate" help:"Retry dead letters, all or those that the flags select." example:"carillon dead-letter replay billing --class http_5xx --since 24h --dry-run"`
}

type deadLetterFlags struct {
	Class string `placeholder:"CLASS" help:"Only those whose last attempt failed in this way, such as http_5xx."`
	State string `placeholder:"STATE" help:"Only those in this state: failed, timed_out or lost."`
	periodFlags
}

func (d deadLetterFlags) query(now time.Time) (repeat.DeadLetterQuery, error) {
	var problems []error
	if class := run.Class(d.Class); d.Class != "" && !slices.Contains(run.Classes, class) {
		problems = append(problems, fmt.Errorf("--class: %s is %s", input.Echo(d.Class), input.NotOneOf(class, run.Classes)))
	}
	if state := run.State(d.State); d.State != "" && !slices.Contains(repeat.DeadLetterStates, state) {
		problems = append(problems, fmt.Errorf("--state: %s is %s", input.Echo(d.State), input.NotOneOf(state, repeat.DeadLetterStates)))
	}
	from, to, err := d.period(now)
	if err := errors.Join(append(problems, err)...); err != nil {
		return repeat.DeadLetterQuery{}, &usageError{err}
	}
	return repeat.DeadLetterQuery{
		Class: run.Class(d.Class), State: run.State(d.State), From: from, To: to,
	}, nil
}

type deadLetterListCommand struct {
	apiFlags
	outputFlags
	ofJobFlags
	deadLetterFlags
	Limit int `default:"100" help:"How many of the latest to show, 0 to 100000. 0: all."`
}

// Run prints the dead letters, latest scheduled time first.
func (d *deadLetterListCommand) Run(ctx context.Context, c console) error {
	query, err := d.query(time.Now())
	if err != nil {
		return err
	}
	var app string
	if app, query.Job, err = d.names(); err != nil {
		return err
	}
	if d.Limit < 0 || d.Limit > 100_000 {
		return &usageError{fmt.Errorf("--limit: %d is not between 0 and 100000", d.Limit)}
	}
	api, err := d.ProvideClient(ctx)
	if err != nil {
		return err
	}
	letters := newest[run.Run]{"dead letters", d.Limit, func(run run.Run) time.Time { return run.ScheduledAt },
		func(app string, page input.Page) (client.List[run.Run], error) {
			query.App, query.Page = app, page
			return api.DeadLetters(ctx, query)
		}}
	all, err := letters.ofApps(ctx, c, api, app)
	if err != nil {
		return err
	}
	return printList(d.outputFlags, c, all, runTitles, runCells)
}

type deadLetterReplayCommand struct {
	apiFlags
	outputFlags
	Of string `arg:"" name:"app[/job]" help:"The app, such as billing, a job, or a delivery that belongs to one, such as billing/load.on_failure."`
	deadLetterFlags
	DryRun bool `help:"Count them, and retry nothing."`
	Yes    bool `help:"Retry them."`
	Limit  int  `default:"0" help:"How many to retry at most. 0: all."`
	Pace   int  `default:"0" help:"How many to retry in a second at most, 1 to 1000. 0: as many as the API takes."`
}

// Run counts dead letters, or retries them batch by batch.
func (d *deadLetterReplayCommand) Run(ctx context.Context, c console) error {
	query, err := d.query(time.Now())
	if err != nil {
		return err
	}
	if d.Limit < 0 || d.Pace < 0 || d.Pace > repeat.MaxReplayPortion || d.DryRun == d.Yes {
		return &usageError{errors.New("give --dry-run to count the dead letters, or --yes to retry them; --limit is not negative, and " +
			"--pace is 0 to 1000")}
	}
	api, err := d.ProvideClient(ctx)
	if err != nil {
		return err
	}
	app, job, _, err := cutOf(d.Of, "APP[/JOB]")
	if err != nil {
		return err
	}
	replay := repeat.DeadLetterReplay{Job: job, Class: query.Class, State: query.State, From: query.From, To: query.To}
	replay.SetDefaults()
	if d.DryRun {
		count, err := api.CountDeadLetters(ctx, app, replay)
		if err != nil {
			return err
		}
		return printObject(d.outputFlags, c, count, func(l *lines) {
			more := ""
			if count.More {
				more = "more than "
			}
			l.add("dead letters", fmt.Sprint(more, count.Count))
		})
	}
	return d.replay(ctx, c, api, app, replay)
}

// replay retries batches until all were retried, the limit is reached or the API stops it.
func (d *deadLetterReplayCommand) replay(
	ctx context.Context, c console, api *client.Client, app string, replay repeat.DeadLetterReplay,
) error {
	var total repeat.Replayed
	said := newProgress(c, "retried")
	if d.Pace > 0 {
		replay.Limit = min(replay.Limit, d.Pace)
	}
	for {
		if left := d.Limit - total.Replayed; d.Limit > 0 {
			replay.Limit = min(replay.Limit, left)
		}
		one, err := api.ReplayDeadLetters(ctx, app, replay)
		if err != nil {
			return fmt.Errorf("after %d retried runs: %w", total.Replayed, err)
		}
		total.Replayed, total.Skipped = total.Replayed+one.Replayed, total.Skipped+one.Skipped
		total.Next, total.Stopped = one.Next, one.Stopped
		said.say(total.Replayed)
		if one.Next == "" || one.Stopped != nil || d.Limit > 0 && total.Replayed >= d.Limit {
			break
		}
		replay.Cursor = one.Next
		if d.Pace > 0 { // as long as that many retries take; the next request says if ctx has ended
			pause(ctx, time.Duration(one.Replayed)*time.Second/time.Duration(d.Pace))
		}
	}
	if err := printObject(d.outputFlags, c, total, func(l *lines) {
		l.add("retried", total.Replayed)
		l.add("skipped", total.Skipped)
	}); err != nil {
		return err
	}
	if total.Stopped != nil {
		return &stoppedError{total.Stopped}
	}
	return nil
}

// stoppedError is why a replay ended before all dead letters were retried.
type stoppedError struct{ why *input.Problem }

// Error also says how to retry the rest.
func (e *stoppedError) Error() string {
	return "the replay stopped early: " + e.why.Message + "; the others stay dead letters, and the same command goes on with them"
}

// Unwrap returns a conflict: the state of the app permits no more retries for now.
func (e *stoppedError) Unwrap() error { return dispatcher.ErrConflict }
