package repeat

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// BulkSpec describes a bulk action: one action on all jobs, or all runs, of an app that a filter selects.
type BulkSpec struct {
	// The action on each job or run. resume_jobs ends pauses of whole jobs. retry_runs retries dead letters.
	Action BulkVerb   `json:"action" schema:"required"`
	Filter BulkFilter `json:"filter"`
	// Reason is shown with the action, and with the pauses that it makes; free text of at most 1024 characters.
	Reason string `json:"reason,omitempty" schema:"max=1024"`
}

// BulkVerb is the action on each job or run.
type BulkVerb string

// The actions.
const (
	BulkPauseJobs  BulkVerb = "pause_jobs"
	BulkResumeJobs BulkVerb = "resume_jobs" // it ends pauses of whole jobs, not those of single triggers
	BulkRunJobs    BulkVerb = "run_jobs"
	BulkCancelRuns BulkVerb = "cancel_runs"
	BulkRetryRuns  BulkVerb = "retry_runs" // of dead letters; see DeadLetterStates
)

// BulkVerbs are all actions.
var BulkVerbs = []BulkVerb{BulkPauseJobs, BulkResumeJobs, BulkRunJobs, BulkCancelRuns, BulkRetryRuns}

// OfJobs reports whether v acts on jobs; otherwise it acts on runs.
func (v BulkVerb) OfJobs() bool { return v == BulkPauseJobs || v == BulkResumeJobs || v == BulkRunJobs }

// Scope returns the scope that a token needs for v: the same as for a single job or run.
func (v BulkVerb) Scope() access.Scope {
	if v == BulkPauseJobs || v == BulkResumeJobs {
		return access.ScopeWrite
	}
	return access.ScopeRun
}

// BulkFilter selects jobs or runs of an app. Empty fields select all. Actions on jobs use Name, Host, Labels, State
// and Result, as in JobQuery; actions on runs use Job, Class, State, From and To, as in lists of runs.
type BulkFilter struct {
	// A part of the name of jobs. Only for actions on jobs, as host, labels and result.
	Name string `json:"name,omitempty"`
	// The host of a webhook, or the name of a function, group, queue or topic, as in the list of jobs.
	Host string `json:"host,omitempty"`
	// All labels that a job must have.
	Labels input.Labels `json:"labels,omitempty"`
	// The state of the latest finished run of a job.
	Result run.State `json:"result,omitempty"`

	// State is the roll-up of jobs, or the state of runs. cancel_runs requires one.
	State string `json:"state,omitempty"`

	// The job of runs. Only for actions on runs, as from and to.
	Job string `json:"job,omitempty"`
	// How runs failed. Only for retry_runs.
	Class run.Class `json:"class,omitempty"`
	// From and To bound the scheduled time of runs, both inclusive.
	From time.Time `json:"from,omitzero"`
	// Upper bound of the scheduled time of runs, inclusive.
	To time.Time `json:"to,omitzero"`
}

// Jobs returns the filter of an action on the jobs of an app.
func (f BulkFilter) Jobs(app string, page input.Page) dispatcher.JobQuery {
	page.Labels = f.Labels
	return dispatcher.JobQuery{Apps: []string{app}, State: dispatcher.JobState(f.State), Result: f.Result, Name: f.Name, Host: f.Host,
		Page: page}
}

// Live returns the filter of an action that cancels runs.
func (f BulkFilter) Live(app string, page input.Page) dispatcher.RunQuery {
	return dispatcher.RunQuery{App: app, Job: f.Job, State: run.State(f.State), From: f.From, To: f.To, Page: page}
}

// Dead returns the filter of an action that retries runs.
func (f BulkFilter) Dead(app string, page input.Page) DeadLetterQuery {
	return DeadLetterQuery{App: app, Job: f.Job, Class: f.Class, State: run.State(f.State), From: f.From, To: f.To, Page: page}
}

// CancellableStates are the states of runs that have not ended.
var CancellableStates = []run.State{run.Queued, run.Claimed, run.Running,
	run.Retrying, run.WaitingCallback, run.WaitingShards}

// MostBulkCounted bounds the count of selected jobs or runs. The action itself is not bounded.
const MostBulkCounted = 10_000

// BulkRequest is the body of a request for a bulk action.
type BulkRequest struct {
	BulkSpec
	// DryRun only counts the selected jobs or runs.
	DryRun bool `json:"dry_run,omitempty"`
	// Expected is the total of a dry run that somebody has agreed to: the action is refused with CodeStateConflict if
	// the filter now selects another number. Without it, any number is accepted.
	Expected *int `json:"expected,omitempty" schema:"min=0"`
}

// Agreed returns an error wrapping ErrConflict if the filter selects another number than agreed.
func (r BulkRequest) Agreed(now BulkCount) error {
	if r.Expected == nil || *r.Expected == now.Total {
		return nil
	}
	return fmt.Errorf("the filter selects %d now, not %d, the number that was agreed to: %w", now.Total, *r.Expected, dispatcher.ErrConflict)
}

// Validate returns everything wrong with s, as Problems, or nil.
func (s BulkSpec) Validate() error {
	var problems input.Problems
	input.CheckEnum(&problems, "/action", "action", s.Action, BulkVerbs)
	input.CheckText(&problems, "/reason", s.Reason)
	if slices.Contains(BulkVerbs, s.Action) {
		s.checkFields(&problems)
		if s.Action.OfJobs() {
			s.Filter.checkJobs(&problems)
		} else {
			s.Filter.checkRuns(&problems, s.Action)
		}
	}
	return problems.Err()
}

// checkFields refuses fields that the action ignores, because they would seem to narrow it.
func (s BulkSpec) checkFields(problems *input.Problems) {
	f, jobs := s.Filter, s.Action.OfJobs()
	for _, field := range []struct {
		name    string
		given   bool
		allowed bool
		kind    string
	}{
		{"name", f.Name != "", jobs, "jobs"},
		{"host", f.Host != "", jobs, "jobs"},
		{"labels", len(f.Labels) > 0, jobs, "jobs"},
		{"result", f.Result != "", jobs, "jobs"},
		{"job", f.Job != "", !jobs, "runs"},
		{"class", f.Class != "", s.Action == BulkRetryRuns, "dead letters"},
		{"from", !f.From.IsZero(), !jobs, "runs"},
		{"to", !f.To.IsZero(), !jobs, "runs"},
	} {
		if field.given && !field.allowed {
			problems.Add("/filter/"+field.name, input.CodeBulkFilter, "%s selects %s; action %s knows no such filter, so leave it out",
				field.name, field.kind, s.Action)
		}
	}
}

func (f BulkFilter) checkJobs(problems *input.Problems) {
	f.Labels.Check(problems, "/filter/labels")
	input.CheckText(problems, "/filter/name", f.Name)
	input.CheckText(problems, "/filter/host", f.Host)
	if f.State != "" {
		input.CheckEnum(problems, "/filter/state", "state of a job", dispatcher.JobState(f.State), dispatcher.JobStates)
	}
	if f.Result != "" {
		input.CheckEnum(problems, "/filter/result", "result", f.Result, run.FinalStates)
	}
}

func (f BulkFilter) checkRuns(problems *input.Problems, action BulkVerb) {
	if action == BulkRetryRuns {
		var of input.Problems
		f.Dead("", input.Page{}).check(&of)
		problems.AddError("/filter", of.Err())
	} else {
		if f.Job != "" {
			CheckJobOrDelivery(problems, "/filter/job", f.Job)
		}
		input.CheckEnum(problems, "/filter/state", "state of a run that can be cancelled", run.State(f.State), CancellableStates)
	}
	if !f.From.IsZero() && !f.To.IsZero() && f.To.Before(f.From) {
		problems.Add("/filter/to", input.CodeTimeRange, "to, %s, is before from, %s", input.FormatInstant(f.To), input.FormatInstant(f.From))
	}
}

// BulkState is the state of a bulk action.
type BulkState string

// The states of a bulk action.
const (
	BulkRunning   BulkState = "running"
	BulkCancelled BulkState = "cancelled" // final: completed work stays
	BulkComplete  BulkState = "complete"  // final: all selected jobs or runs were reached
)

// Ended reports whether a state is final.
func (s BulkState) Ended() bool { return s != BulkRunning }

// BulkAction is a bulk action and its progress. It selects as it goes, so its counts may differ from Total.
type BulkAction struct {
	ID  string `json:"id"`
	App string `json:"app"`
	BulkSpec
	State BulkState `json:"state"`
	dispatcher.StepRetries
	BulkCount
	// Done counts jobs or runs that the action changed. Skipped counts those that needed no change or changed
	// meanwhile, and Problem is why the latest refused one was refused.
	Done int `json:"done"`
	// How many needed no change, changed meanwhile, or were refused.
	Skipped int `json:"skipped"`
	// Why the latest refused one was refused.
	Problem string `json:"problem,omitempty"`

	// The actor, as in the audit log.
	CreatedBy string     `json:"created_by"`
	CreatedAt time.Time  `json:"created_at"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
}

// BulkCount is how many jobs or runs a filter selects.
type BulkCount struct {
	// How many jobs or runs the filter selects, as counted at the beginning; at most 10,000.
	Total int `json:"total"`
	// More is true if there are more than MostBulkCounted.
	More bool `json:"more,omitempty"`
}

// BulkActionID returns an id as people see it, in the form of ids of backfills.
func BulkActionID(id int64) string { return BackfillID(id) }

// ParseBulkActionID is the inverse of BulkActionID.
func ParseBulkActionID(text string) (int64, error) { return ParseBackfillID(text) }

// Cancel returns b after it was cancelled at now. The error is ErrConflict: it is complete.
func (b BulkAction) Cancel(now time.Time) (BulkAction, error) {
	switch b.State {
	case BulkCancelled:
		return b, nil
	case BulkComplete:
		return b, fmt.Errorf("bulk action %s is complete: %w", b.ID, dispatcher.ErrConflict)
	}
	b.State, b.StepRetries, b.EndedAt = BulkCancelled, dispatcher.StepRetries{}, &now
	return b, nil
}

// BulkActions act on all jobs or runs that a filter selects.
type BulkActions interface {
	// CountBulk counts the jobs or runs that a bulk action would act on.
	CountBulk(ctx context.Context, app string, spec BulkSpec) (BulkCount, error)
	// CreateBulkAction begins a bulk action with that count. It acts in the name of change's actor.
	CreateBulkAction(ctx context.Context, app string, spec BulkSpec, count BulkCount, change input.Change) (BulkAction, error)
	// BulkAction returns a bulk action, or ErrNotFound.
	BulkAction(ctx context.Context, app, id string) (BulkAction, error)
	// BulkActions lists the bulk actions of an app, the latest first. The cursor is the id of one.
	BulkActions(ctx context.Context, app string, page input.Page) ([]BulkAction, error)
	// CancelBulkAction ends a bulk action. Completed work stays. It can be repeated. ErrConflict: it is complete.
	CancelBulkAction(ctx context.Context, app, id string, change input.Change) (BulkAction, error)
}

// BulkStep is the result of one call of StepBulkAction.
type BulkStep struct {
	// Reached is how many jobs or runs it looked at.
	Reached int
	// Adopt is true if runs wait to be adopted.
	Adopt bool
	// More is true if the next call can go on at once. Waits is how long until a quota may let it go on, or 0.
	More  bool
	Waits time.Duration
	// TryAt is when a failed step is tried again; zero if the database failed.
	TryAt time.Time
}

// BulkFeed keeps bulk actions going.
type BulkFeed interface {
	// OpenBulkActions returns unfinished actions, the fewest failures first; none while a rollback awaits a choice.
	OpenBulkActions(ctx context.Context) ([]dispatcher.OpenSteps, error)
	// StepBulkAction acts on the next jobs or runs of a bulk action. Each is one transaction that moves the action
	// on, so any node may call it at any time and any number of times without repeating work. If it fails because of
	// the stored action, it waits longer after each failure; a job or run that fails repeatedly is skipped.
	StepBulkAction(ctx context.Context, id int64, now time.Time) (BulkStep, error)
}
