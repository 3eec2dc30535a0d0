package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// jobCommand shows, runs, pauses and renames jobs.
type jobCommand struct {
	List   jobListCommand   `cmd:"" aliases:"ls" help:"List jobs with their state, latest result and next fire." example:"carillon job list billing --result failed"`
	Show   jobShowCommand   `cmd:"" aliases:"describe" help:"Show a job with its triggers and warnings." example:"carillon job show billing/invoices"`
	Strip  jobStripCommand  `cmd:"" help:"Show the latest and the next scheduled times of a trigger, and what became of each. Exit code 8: one is missing." example:"carillon job strip billing/invoices/berlin --past 10 --next 3"`
	Run    jobRunCommand    `cmd:"" group:"operate" help:"Run a job now." example:"carillon job run billing/invoices --wait"`
	Pause  jobPauseCommand  `cmd:"" group:"operate" help:"Pause a job, or one of its triggers." example:"carillon job pause billing/invoices --reason \"the ledger is being migrated\""`
	Resume jobResumeCommand `cmd:"" group:"operate" help:"Resume a job, or one of its triggers." example:"carillon job resume billing/invoices/berlin"`
	State  jobStateCommand  `cmd:"" help:"Look at the state that a job's runs carry, set it or clear it."`
	Delete deleteCommand    `cmd:"" hidden:""`
	Rename jobRenameCommand `cmd:"" group:"operate" help:"Rename a job, or triggers of it." example:"carillon job rename billing/invoices bills --trigger berlin=frankfurt"`
}

// stateOfJob returns the most important state of a job for an operator.
func stateOfJob(job dispatcher.Job) stateCell {
	broken := ""
	for _, name := range slices.Sorted(maps.Keys(job.Triggers)) {
		if job.Triggers[name].State == dispatcher.TriggerError {
			broken = "error in trigger " + name
		}
	}
	switch {
	case !job.Enabled:
		return "disabled"
	case job.Paused || len(job.Pauses) > 0:
		return "paused"
	case broken != "":
		return stateCell(broken)
	}
	return stateCell(string(job.State))
}

type jobFlags struct {
	apiFlags
	outputFlags
	Job string `arg:"" name:"app/job" help:"The job, such as billing/invoices."`
}

// open returns a client, and the names of app and job.
func (j *jobFlags) open(ctx context.Context) (api *client.Client, app, job string, err error) {
	return j.named(ctx, j.Job, "APP/JOB")
}

type jobShowCommand struct{ jobFlags }

func (s *jobShowCommand) Run(ctx context.Context, c console) error {
	return printNamed(ctx, c, s, (*client.Client).Job, jobLines)
}

func jobLines(l *lines, job dispatcher.Job) {
	l.add("job", job.App+"/"+job.Name)
	l.add("description", job.Description)
	l.add("runbook", job.RunbookURL)
	l.add("state", stateOfJob(job))
	l.add("paused", pausedBy(job.Pause))
	for _, pause := range job.Pauses {
		l.add("pause "+pause.ID, pause.String())
	}
	l.add("target", targetOf(job.Target))
	l.add("delivery", job.Delivery)
	l.add("attempts", fmt.Sprintf("at most %d", max(job.Retry.MaxAttempts, 1)))
	l.add("concurrency", concurrencyOf(job))
	l.add("carries state", yesIf(job.CarryState))
	l.add("objective", objectiveOf(job.Objective))
	l.add("labels", job.Labels)
	l.add("node labels", job.NodeLabels)
	l.add("priority", job.Priority)
	l.add("revision", fmt.Sprintf("%d of %s", job.Revision, input.FormatInstant(job.UpdatedAt)))
	for _, name := range slices.Sorted(maps.Keys(job.Triggers)) {
		t := job.Triggers[name]
		l.paragraph()
		l.add("trigger", name)
		l.add("  schedule", strings.TrimSpace(t.Expression+" "+t.Timezone))
		addRules(l, t.Schedule)
		state := string(t.State)
		if !t.Enabled {
			state = "disabled"
		}
		l.add("  state", stateCell(state))
		l.add("  paused", pausedBy(t.Pause))
		l.add("  error", t.Error)
		l.add("  previous fire", t.PrevFireTime)
		l.add("  next fire", nextFireOf(t))
		l.add("  if missed", t.MisfirePolicy)
	}
	if len(job.Warnings) > 0 {
		l.paragraph()
	}
	for _, warning := range job.Warnings {
		l.add("warning", strings.TrimSpace(warning.Path+" "+warning.Message))
	}
}

// addRules adds what a schedule has besides its expression.
func addRules(l *lines, s dispatcher.Schedule) {
	l.add("  starts", s.StartAt)
	l.add("  ends", s.EndAt)
	if s.RepeatCount > 0 {
		l.add("  repeat count", s.RepeatCount)
	}
	if s.Calendar != "" {
		l.add("  calendar", fmt.Sprintf("%s (on_excluded = %q)", s.Calendar, cmp.Or(s.OnExcluded, schedule.OnExcludedSkip)))
	}
	l.add("  gap", s.Gap)
	l.add("  overlap", s.Overlap)
	l.add("  drift hour", yesIf(s.DriftHour))
	if s.Jitter > 0 {
		l.add("  jitter", "up to "+s.Jitter.String())
	}
}

// nextFireOf returns the next fire of a trigger. The list of jobs shows none for a paused one.
func nextFireOf(t dispatcher.Trigger) any {
	if t.State == dispatcher.TriggerPaused && t.NextFireTime != nil {
		return "none while it is paused; scheduled for " + input.FormatInstant(*t.NextFireTime)
	}
	return t.NextFireTime
}

// pausedBy describes who paused something, when and why; empty if it is not paused.
func pausedBy(p dispatcher.Pause) string {
	if p.PausedAt == nil {
		return ""
	}
	text := fmt.Sprintf("by %s at %s", p.PausedBy, input.FormatInstant(*p.PausedAt))
	if p.PausedUntil != nil {
		text += ", until " + input.FormatInstant(*p.PausedUntil)
	}
	if p.PauseReason != "" {
		text += ": " + p.PauseReason
	}
	return text
}

// targetOf describes the target of a job in a line.
func targetOf(target target.Target) string {
	switch {
	case target.Webhook != nil:
		return target.Webhook.Method + " " + target.Webhook.URL
	case target.Group != nil:
		return target.Group.Method + " to endpoint group " + target.Group.Name
	case target.Lambda != nil:
		return "lambda " + target.Lambda.Function
	case target.SQS != nil:
		return "sqs " + target.SQS.QueueARN
	case target.SNS != nil:
		return "sns " + target.SNS.TopicARN
	}
	return ""
}

func concurrencyOf(job dispatcher.Job) string {
	text := string(job.ConcurrencyPolicy)
	if job.MaxConcurrency > 0 {
		text += fmt.Sprintf(", at most %d at once", job.MaxConcurrency)
	}
	if policy := job.EndpointPolicy(); policy != run.ConcurrencyAllow {
		text += fmt.Sprintf("; one at a time at each endpoint: %s", policy)
	}
	return text
}

// jobStateCommand shows and changes the state that the runs of a job carry.
type jobStateCommand struct {
	Show  jobStateShowCommand  `cmd:"" aliases:"describe" help:"Show the state that the next run of a job gets." example:"carillon job state show billing/invoices"`
	Set   jobStateSetCommand   `cmd:"" group:"operate" help:"Set the state that the next run of a job gets." example:"carillon job state set billing/invoices '{\"cursor\": 4711}'"`
	Clear jobStateClearCommand `cmd:"" group:"operate" help:"Clear the state that a job's runs carry." example:"carillon job state clear billing/invoices"`
}

type jobStateShowCommand struct{ jobFlags }

func (s *jobStateShowCommand) Run(ctx context.Context, c console) error {
	return printNamed(ctx, c, s, (*client.Client).CarriedState, s.show)
}

func (j *jobFlags) print(c console, state run.CarriedState) error {
	return printObject(j.outputFlags, c, state, func(l *lines) { j.show(l, state) })
}

func (j *jobFlags) show(l *lines, state run.CarriedState) {
	l.add("job", j.Job)
	l.add("state", string(state.State))
	l.add("revision", state.Revision)
	l.add("updated at", state.UpdatedAt)
	l.add("returned by run", state.Run)
	l.add("set by", state.SetBy)
	l.add("discarded", discarded(state.DiscardedRun))
}

// discarded describes the run with a discarded state; empty without one.
func discarded(run string) string {
	if run == "" {
		return ""
	}
	return "what run " + run + " returned, because the state was changed while it ran"
}

type jobStateSetCommand struct {
	jobFlags
	State    string `arg:"" name:"json|@file|-" help:"JSON of at most 4 KiB, @ and the path of a file with it, or - for standard input."`
	Revision int64  `placeholder:"N" help:"Only if this is the revision of the state that is there."`
}

func (s *jobStateSetCommand) Run(ctx context.Context, c console) error {
	text, _, err := readJSON(c, s.State)
	if err != nil {
		return err
	}
	state, err := run.ReadCarriedState(text)
	if err != nil {
		return fmt.Errorf("%w; give JSON, such as '{\"cursor\": 4711}'", err)
	}
	api, app, name, err := s.open(ctx)
	if err != nil {
		return err
	}
	stored, err := api.SetCarriedState(ctx, app, name, state, atRevision(s.Revision))
	if err != nil {
		return err
	}
	return s.print(c, stored)
}

// atRevision is the condition that a revision is current; 0 accepts every revision.
func atRevision(revision int64) client.Condition {
	if revision == 0 {
		return client.Condition{Existing: true}
	}
	return client.Condition{Revision: revision}
}

type jobStateClearCommand struct {
	jobFlags
	Revision int64 `placeholder:"N" help:"Only if this is the revision of the state that is there."`
}

func (s *jobStateClearCommand) Run(ctx context.Context, c console) error {
	api, app, name, err := s.open(ctx)
	if err != nil {
		return err
	}
	if err := api.ClearCarriedState(ctx, app, name, atRevision(s.Revision)); err != nil {
		return err
	}
	state, err := api.CarriedState(ctx, app, name)
	if err != nil {
		return err
	}
	return s.print(c, state)
}

// jobStripCommand shows the scheduled times of a trigger in a row.
type jobStripCommand struct {
	apiFlags
	outputFlags
	Trigger string `arg:"" name:"app/job/trigger" help:"The trigger, such as billing/invoices/berlin."`
	Past    int    `default:"60" help:"How many of the latest scheduled times to show, 0 to 200."`
	Next    int    `default:"20" help:"How many of the coming ones to show, 0 to 100."`
}

// Run prints the strip. It fails if the ledger lacks a scheduled time that it should have.
func (s *jobStripCommand) Run(ctx context.Context, c console) error {
	names, err := cutPath(s.Trigger, "APP/JOB/TRIGGER", 3)
	if err != nil {
		return err
	}
	if s.Past < 0 || s.Past > view.MostStripPast || s.Next < 0 || s.Next > view.MostStripNext || s.Past+s.Next == 0 {
		return &usageError{fmt.Errorf("--past is 0 to %d and --next is 0 to %d; one of them is not 0", view.MostStripPast,
			view.MostStripNext)}
	}
	api, err := s.ProvideClient(ctx)
	if err != nil {
		return err
	}
	strip, err := api.Strip(ctx, view.StripQuery{App: names[0], Job: names[1], Trigger: names[2], Past: s.Past, Next: s.Next})
	if err != nil {
		return err
	}
	if err := s.print(c, strip); err != nil {
		return err
	}
	for _, cell := range strip.Cells {
		if cell.What == view.CellMissing {
			return &negativeError{errors.New("a scheduled time has neither a run nor a decision")}
		}
	}
	return nil
}

func (s *jobStripCommand) print(c console, strip view.Strip) error {
	if s.Output != outputTable {
		return printObject(s.outputFlags, c, strip, nil)
	}
	if strip.Incomplete != "" {
		fmt.Fprintf(c.err, "carillon: there may be more scheduled times: %s\n", plain(strip.Incomplete))
	}
	return printList(s.outputFlags, c, strip.Cells, "SCHEDULED AT\tWHAT\tSTATE\tLATE\tTOOK\tRUN\tWHY", func(cell view.StripCell) []any {
		at := input.FormatInstant(cell.ScheduledAt)
		if cell.Until != nil {
			at += " to " + input.FormatInstant(*cell.Until)
		}
		state := string(cell.State)
		if cell.Decision != "" {
			state = string(cell.Decision)
		}
		return []any{at, string(cell.What), stateCell(state), durationCell(cell.Late), durationCell(cell.Took), cell.Run, cell.Why}
	})
}

// durationCell returns a duration, or "" if it is unknown.
func durationCell(d input.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

type jobListCommand struct {
	apiFlags
	outputFlags
	ofJobFlags
	State  string            `placeholder:"STATE" help:"Only jobs in this state: error, executing, paused, complete or init."`
	Result string            `placeholder:"STATE" help:"Only jobs whose latest run ended so, such as failed."`
	Name   string            `placeholder:"TEXT" help:"Only jobs whose name contains this."`
	Host   string            `placeholder:"HOST" help:"Only jobs that call this host, function, group, queue or topic."`
	Label  map[string]string `mapsep:"," placeholder:"NAME=VALUE,..." help:"Only jobs that have all of these labels."`

	ByNextFire bool `help:"Only jobs that have a next fire, the earliest first."`
}

func (l *jobListCommand) query() (query dispatcher.JobQuery, job string, err error) {
	app, job, err := l.names()
	if err != nil {
		return query, "", err
	}
	query = dispatcher.JobQuery{State: dispatcher.JobState(strings.ToLower(l.State)), Result: run.State(l.Result), Name: l.Name, Host: l.Host,
		ByNextFire: l.ByNextFire}
	if app != "" {
		query.Apps = []string{app}
	}
	if job != "" && l.Name == "" {
		query.Name = job // the API has no filter of whole names
	}
	query.Page.Labels = l.Label
	if err := input.Labels(l.Label).Validate(); err != nil {
		return query, "", &usageError{fmt.Errorf("--label: %w", err)}
	}
	if l.State != "" && !slices.Contains(dispatcher.JobStates, query.State) {
		return query, "", &usageError{fmt.Errorf("--state: %s is %s", input.Echo(l.State), input.NotOneOf(query.State, dispatcher.JobStates))}
	}
	return query, job, nil
}

func (l *jobListCommand) Run(ctx context.Context, c console) error {
	query, job, err := l.query()
	if err != nil {
		return err
	}
	api, err := l.ProvideClient(ctx)
	if err != nil {
		return err
	}
	all, err := summaries(ctx, c, api, query)
	if err != nil {
		return err
	}
	if job != "" {
		if all = slices.DeleteFunc(all, func(s dispatcher.JobSummary) bool { return s.Name != job }); len(all) == 0 {
			_, err := api.Job(ctx, query.Apps[0], job) // it may be another state that hides it
			if err != nil {
				return err
			}
		}
	}
	now := time.Now()
	return printList(l.outputFlags, c, all, "JOB\tSTATE\tLAST\tNEXT", func(s dispatcher.JobSummary) []any {
		return []any{s.App + "/" + s.Name, stateOfSummary(s), lastOf(s, now), nextOf(s, now)}
	})
}

// summaries reads the jobs that a query selects.
func summaries(ctx context.Context, c console, api *client.Client, query dispatcher.JobQuery) ([]dispatcher.JobSummary, error) {
	read, n := newProgress(c, "jobs"), 0
	all, _, err := allPages(0, func(page input.Page) (client.List[dispatcher.JobSummary], error) {
		page.Labels = query.Page.Labels
		query.Page = page
		list, err := api.JobSummaries(ctx, query)
		n += len(list.Items)
		read.say(n)
		return list, err
	})
	return all, err
}

// stateOfSummary returns the most important state of a job for an operator.
func stateOfSummary(s dispatcher.JobSummary) stateCell {
	switch {
	case !s.Enabled:
		return "disabled"
	case s.Paused || s.AppPaused:
		return "paused"
	}
	return stateCell(s.State)
}

// lastOf says how the latest run ended, or stands, and how long ago that was.
func lastOf(s dispatcher.JobSummary, now time.Time) stateCell {
	r := s.LatestRun
	switch {
	case r == nil:
		return "never"
	case r.EndedAt == nil:
		return stateCell(fmt.Sprintf("%s since %s", r.State, ago(now.Sub(r.ScheduledAt))))
	}
	return stateCell(strings.TrimSpace(fmt.Sprintf("%s %s ago %s", r.State, ago(now.Sub(*r.EndedAt)), r.Class)))
}

// nextOf says in how long the job fires next.
func nextOf(s dispatcher.JobSummary, now time.Time) string {
	if s.NextFireTime == nil {
		return "-"
	}
	return "in " + ago(s.NextFireTime.Sub(now))
}
