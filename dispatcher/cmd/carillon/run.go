package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// runCommand shows runs, repeats and cancels them.
type runCommand struct {
	List     runListCommand     `cmd:"" aliases:"ls" help:"List runs, the latest first." example:"carillon run list --failed --since 1h"`
	Show     runShowCommand     `cmd:"" aliases:"describe" help:"Show a run with its attempts, the time of each phase, and the responses." example:"carillon run show 01k7zq8w0v2s9x4t6b3n5m7p1r"`
	Watch    runWatchCommand    `cmd:"" help:"Show each change of a run until it ends. Exit code 8: it did not succeed." example:"carillon run watch 01k7zq8w0v2s9x4t6b3n5m7p1r"`
	Log      runLogCommand      `cmd:"" help:"Print the log that an executor of XXL-JOB keeps of a run." example:"carillon run log 01k7zq8w0v2s9x4t6b3n5m7p1r"`
	Retry    runRetryCommand    `cmd:"" group:"operate" help:"Queue a run that has ended again, under the same event id." example:"carillon run retry 01k7zq8w0v2s9x4t6b3n5m7p1r --wait"`
	Complete runCompleteCommand `cmd:"" group:"operate" help:"End a run that waits for the callback of its target, as succeeded." example:"carillon run complete 01k7zq8w0v2s9x4t6b3n5m7p1r"`
	Fail     runFailCommand     `cmd:"" group:"operate" help:"End the attempt of a run that waits for the callback of its target, as failed. It is attempted again if its job says so." example:"carillon run fail 01k7zq8w0v2s9x4t6b3n5m7p1r --message 'the import hangs'"`
	Cancel   runCancelCommand   `cmd:"" group:"operate" help:"Cancel a run that has not ended." example:"carillon run cancel 01k7zq8w0v2s9x4t6b3n5m7p1r"`
}

type runFlags struct {
	apiFlags
	outputFlags
	ID string `arg:"" help:"Id of the run."`
}

// call changes the run, and prints it.
func (r *runFlags) call(ctx context.Context, c console, change func(*client.Client, context.Context, string) (run.Run, error)) error {
	api, err := r.ProvideClient(ctx)
	if err != nil {
		return err
	}
	changed, err := change(api, ctx, r.ID)
	if err != nil {
		return err
	}
	return printRunLine(c, r.outputFlags, changed, false)
}

type runShowCommand struct {
	runFlags
	Body bool `help:"Print the stored response bodies in full, not only their first lines."`
}

// Run prints the run, with a paragraph for each attempt.
func (r *runShowCommand) Run(ctx context.Context, c console, api *client.Client) error {
	one, err := api.Run(ctx, r.ID)
	if err != nil {
		return err
	}
	var shards []run.Run
	if one.Shards != nil {
		query := dispatcher.RunQuery{App: one.App, Parent: one.ID}
		if shards, _, err = allPages(0, func(page input.Page) (client.List[run.Run], error) {
			query.Page = page
			return api.Runs(ctx, query)
		}); err != nil {
			return err
		}
	}
	return printObject(r.outputFlags, c, one, func(l *lines) {
		showRun(l, one, r.Body)
		if len(shards) > 0 {
			l.paragraph()
		}
		for _, one := range slices.Backward(shards) {
			text := string(one.State)
			if one.Attempt > 1 {
				text += fmt.Sprintf(" at attempt %d", one.Attempt)
			}
			if one.Shard.Endpoint != "" {
				text += ", made for " + one.Shard.Endpoint
			}
			if one.Error != "" {
				text += ", " + one.Error
			}
			l.add(fmt.Sprint("shard ", one.Shard.Index), stateCell(text))
		}
	})
}

func showRun(l *lines, r run.Run, body bool) {
	l.add("run", r.ID)
	l.add("job", r.App+"/"+r.Job)
	l.add("trigger", r.Trigger)
	l.add("kind", string(r.Kind))
	l.add("scheduled at", r.ScheduledAt)
	if began := r.Began(); r.Kind == run.KindSchedule && began != nil {
		l.add("late", durationCell(input.Duration(began.Sub(r.ScheduledAt))))
	}
	l.add("state", stateCell(r.State))
	l.add("event id", r.EventID)
	if r.Shard != nil {
		l.add("shard", fmt.Sprintf("%d of %d, from 0, of run %s", r.Shard.Index, r.Shard.Total, r.Parent))
		l.add("made for", r.Shard.Endpoint)
	}
	if r.Shards != nil {
		l.add("shards", fmt.Sprintf("%d: %d succeeded, %d superseded, %d failed, %d live", r.Shards.Total, r.Shards.Succeeded,
			r.Shards.Superseded, r.Shards.Failed, r.Shards.Live))
	}
	showInput(l, r)
	showWaits(l, r)
	if r.State == run.Retrying {
		l.add("because", r.Error)
	}
	attempts := r.Attempts
	if accepted := r.Accepted(); accepted != nil {
		attempts = append(slices.Clone(attempts), *accepted)
	}
	for _, a := range attempts {
		l.paragraph()
		l.add(fmt.Sprint("attempt ", a.Attempt), stateCell(a.State))
		if a.Node != 0 {
			l.add("  node", a.Node.String())
		}
		l.add("  started at", a.StartedAt)
		l.add("  took", a.EndedAt.Sub(a.StartedAt).String())
		if a.HTTPStatus != 0 {
			l.add("  status", a.HTTPStatus)
		}
		l.add("  class", string(a.Class))
		l.add("  error", a.Error)
		if a.Late != nil {
			l.add("  late result", fmt.Sprintf("%s, %s", a.Late.State, a.Late.Error))
		}
		if a.Response != nil {
			showResponse(l, *a.Response, body)
		}
	}
}

// showWaits prints what a run waits for, or has waited for.
func showWaits(l *lines, r run.Run) {
	l.add("next attempt at", r.NextAttemptAt)
	l.add("held", r.Held)
	if r.Held == "" && (r.WaitsFor != "" || r.WaitsForEndpoint != "" || r.SlotWait != nil) {
		l.add("waits", strings.TrimPrefix(r.Waiting(), "waits "))
	}
	l.add("waited", r.HasWaited())
	if wait := r.Callback; wait != nil {
		l.add("accepted by", wait.Endpoint)
		l.add("accepted at", wait.AcceptedAt)
		l.add("callback by", wait.Deadline)
		l.add("heartbeat at", wait.HeartbeatAt)
		l.add("progress", progressOf(*wait))
	}
}

// showInput prints the input of a run, and why it exists.
func showInput(l *lines, run run.Run) {
	if cause := run.Cause; cause != nil {
		if cause.Run != "" {
			l.add("follows", strings.TrimSpace("run "+cause.Run+" "+cause.On))
		}
		l.add("backfill", cause.Backfill)
		if cause.Range != nil {
			l.add("range", input.FormatInstant(cause.Range.From)+" to "+input.FormatInstant(cause.Range.To))
		}
		l.add("alert", cause.Alert)
	}
	l.add("payload", string(run.Payload))
	for _, one := range run.FollowedBy {
		l.add("followed by", fmt.Sprintf("run %s of %s/%s %s, %s", one.Run, one.App, one.Job, one.On, one.State))
	}
}

// progressOf formats the progress that the target reported, or returns "".
func progressOf(wait run.CallbackState) string {
	if wait.Percent == nil {
		return wait.Progress
	}
	return strings.TrimSpace(fmt.Sprintf("%d %% %s", *wait.Percent, wait.Progress))
}

// showResponse prints a stored response, with the first lines or all of its body.
func showResponse(l *lines, a run.Response, body bool) {
	l.add("  endpoint", a.Endpoint)
	l.add("  addresses", strings.Join(a.Addresses, ", "))
	l.add("  phases", phases(a.Phases))
	l.add("  omitted", a.Omitted)
	l.add("  result", a.CallbackResult)
	l.add("  request id", a.RequestID)
	l.add("  message id", a.MessageID)
	l.add("  version", a.ExecutedVersion)
	l.add("  function error", a.FunctionError)
	for _, name := range slices.Sorted(maps.Keys(a.Headers)) {
		l.add("  "+name, a.Headers[name])
	}
	const most = 5
	text := strings.Split(strings.TrimRight(a.Body, "\r\n"), "\n")
	more := a.BodyTruncated
	if !body && len(text) > most {
		text, more = text[:most], true
	}
	for _, one := range text {
		l.add("  body", one)
	}
	if more {
		l.add("  body", "…")
	}
	if a.LogTail != "" {
		for one := range strings.SplitSeq(strings.TrimRight(a.LogTail, "\r\n"), "\n") {
			l.add("  log", one)
		}
	}
}

func phases(p run.Phases) string {
	var parts []string
	for _, one := range []struct {
		name string
		took input.Duration
	}{{"dns", p.DNS}, {"connect", p.Connect}, {"tls", p.TLS}, {"first byte", p.FirstByte}, {"last byte", p.LastByte}} {
		if one.took != 0 {
			parts = append(parts, one.name+" "+one.took.Std().Round(10*time.Microsecond).String())
		}
	}
	return strings.Join(parts, ", ")
}

type runCompleteCommand struct{ runEndFlags }

// runFailCommand fails the attempt of a run in place of its target.
type runFailCommand struct{ runEndFlags }

// runEndFlags name a run and the message for its end.
type runEndFlags struct {
	runFlags
	Message string `placeholder:"TEXT" help:"Why, in at most 1024 bytes. It is kept with the attempt."`
}

func (r *runCompleteCommand) Run(ctx context.Context, c console) error {
	return r.end(ctx, c, (*client.Client).CompleteRun)
}

func (r *runFailCommand) Run(ctx context.Context, c console) error {
	return r.end(ctx, c, (*client.Client).FailRun)
}

// end ends the attempt, and then prints the run.
func (r *runEndFlags) end(ctx context.Context, c console,
	by func(*client.Client, context.Context, string, string) (run.CallbackReply, error),
) error {
	api, err := r.ProvideClient(ctx)
	if err != nil {
		return err
	}
	if _, err := by(api, ctx, r.ID, r.Message); err != nil {
		return err
	}
	run, err := api.Run(ctx, r.ID)
	if err != nil {
		return err
	}
	return printRunLine(c, r.outputFlags, run, false)
}

// runLogCommand prints the log of a run on an XXL-JOB executor.
type runLogCommand struct {
	apiFlags
	ID      string `arg:"" help:"Id of the run."`
	Attempt int    `help:"Number of the attempt. Default: the latest."`
	From    int    `help:"First line to print, counted from 1." default:"1"`
	Follow  bool   `help:"Print further lines until the run ends."`
}

// logPause is the interval at which a followed log is read.
const logPause = time.Second

// Run prints the current log, or follows it until the run ends.
func (l *runLogCommand) Run(ctx context.Context, c console, api *client.Client) error {
	for from := l.From; ; {
		log, err := api.RunLog(ctx, l.ID, l.Attempt, from)
		if err != nil {
			return err
		}
		for line := range strings.Lines(log.Content) {
			if _, err := fmt.Fprintln(c.out, plain(strings.TrimRight(line, "\r\n"))); err != nil {
				return err
			}
		}
		from = max(from, log.ToLine+1)
		if !l.Follow {
			return nil
		}
		if log.ToLine < log.FromLine { // no further line; its run may have ended
			run, err := api.Run(ctx, l.ID)
			if err != nil || hasEnded(run) {
				return err
			}
		}
		if pause(ctx, logPause); ctx.Err() != nil {
			return ctx.Err()
		}
	}
}
