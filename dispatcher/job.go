package dispatcher

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Job is a target, the payload that is sent to it, and the triggers that schedule this.
type Job struct {
	// App and Name identify the job; the client chooses them. A JobRename changes Name. In a body they are optional,
	// and equal to those in the path.
	App  string `json:"app" schema:"Name"`
	Name string `json:"name" schema:"Name"`
	// Origin is the name that keys, event ids and H are derived from, if it is not Name: the name at creation, with
	// "~2", "~3" and so on if another job had that origin.
	Origin string `json:"origin,omitempty" body:"-" schema:"Origin"`
	JobSpec
	JobStatus `body:"-"`
}

// JobSpec is the definition of a job, as people declare it.
type JobSpec struct {
	// Description is free text of at most 1024 characters.
	Description string `json:"description" schema:"max=1024"`
	// RunbookURL is the http or https URL of the page that says what to do when the job fails, of at most 1024 characters;
	// notifications of alerts link to it. Empty: none.
	RunbookURL string `json:"runbook_url,omitempty" schema:"max=1024"`
	// Enabled is whether the triggers of the job fire. Scheduled times of a disabled trigger are not missed: once
	// enabled again, it starts with its next scheduled time.
	Enabled bool `json:"enabled"`
	// Priority orders the fires of the app that wait for a node: higher goes first; 0 to
	// maxPriority.
	Priority int `json:"priority" schema:"max=9,min=0"`
	// Labels classify jobs for people and programs, such as team=payments. Pauses of the app may select jobs by them.
	Labels input.Labels `json:"labels,omitempty"`
	// NodeLabels are the labels that a node must have to run the job; if empty, any node may. Fires wait while no
	// node has them.
	NodeLabels input.Labels `json:"node_labels,omitempty"`
	JobPolicies
	// CarryState lets each run get a small state from the run before it and return one for the next; see CarriedState. It
	// needs ConcurrencyForbid or ConcurrencyQueue with one slot.
	CarryState bool `json:"carry_state,omitempty"`
	// Objective is the share of its fires that should begin in time; nil if it has no objective.
	Objective *Objective `json:"objective,omitempty"`
	// DeleteAfterCompletion is how long after State became complete the job is deleted, from MinDeleteAfter to
	// MaxRetention; 0 means never. A job that leaves complete before that stays.
	DeleteAfterCompletion input.Duration `json:"delete_after_completion,omitempty"`
	// Acknowledge lists codes of warnings, from WarningCodes, to leave out of Warnings because their cause is intended.
	Acknowledge []string `json:"acknowledge,omitempty"`
	// Target is called by each run.
	Target target.Target `json:"target" schema:"required"`
	// Payload is any JSON value of at most 256 KiB, nested at most 32 deep; it becomes the body.
	Payload json.RawMessage `json:"payload,omitempty"`
	JobFollows
	// Triggers holds the schedules by name; at most 100.
	Triggers map[string]Trigger `json:"triggers" schema:"key=Name,max=100"`
}

// JobPolicies decide how many runs overlap, and about runs that fail.
type JobPolicies struct {
	// Delivery decides about attempts with an unknown outcome.
	Delivery run.Delivery `json:"delivery"`
	// Retry decides whether and when a failed run is attempted again.
	Retry run.Retry `json:"retry,omitzero"`
	// ConcurrencyPolicy decides about a run when all slots are taken; empty means ConcurrencyAllow.
	ConcurrencyPolicy run.ConcurrencyPolicy `json:"concurrency_policy"`
	// MaxConcurrency is how many runs of the job there may be at once, over all nodes, at most
	// MaxMaxConcurrency; 0 means no bound with ConcurrencyAllow, else one run.
	MaxConcurrency int `json:"max_concurrency" schema:"max=1000,min=0"`
	// QueueLimit is how many runs may wait for a slot; 0 means defaultQueueLimit.
	QueueLimit int `json:"queue_limit" schema:"max=1000,min=0"`
}

// JobFollows declare what follows the runs and the missed fires of a job; nil if nothing does.
type JobFollows struct {
	// Followers of a run that succeeded.
	OnSuccess *Follow `json:"on_success,omitempty"`
	// Followers of a run that failed, timed out or was lost, after its last attempt.
	OnFailure *Follow `json:"on_failure,omitempty"`
	// Followers of a decision about missed fires.
	OnMisfire *Follow `json:"on_misfire,omitempty"`
}

// JobStatus is what Carillon itself knows about a job.
type JobStatus struct {
	// Paused is an operator's pause of the whole job.
	Paused bool `json:"paused"`
	// Pause says who paused it, when, and why.
	Pause
	// Pauses are the pauses of the app that hold the job.
	Pauses []AppPause `json:"pauses,omitempty"`
	// AppPaused is true if a pause of the app keeps the triggers of the job from firing.
	AppPaused bool `json:"-"`
	// State is the roll-up of the job's triggers and live runs. It is for people: no fire depends on it. A change of
	// the definition updates it at once, other changes within a handler interval, or several with many thousands of
	// jobs.
	State JobState `json:"state"`
	// Revision counts the changes of the job; it is its ETag.
	Revision  int64     `json:"revision"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	// Warnings are problems that do not stop the job from being stored.
	Warnings []input.Problem `json:"warnings,omitempty"`
}

// SetDefaults gives a decoded job the values of fields that its JSON leaves out.
func (j *JobSpec) SetDefaults() {
	j.Enabled, j.Delivery = true, AtLeastOnce
	j.Retry.SetDefaults()
	j.ConcurrencyPolicy, j.QueueLimit = run.ConcurrencyAllow, defaultQueueLimit
}

// The policies of delivery.
const (
	AtLeastOnce run.Delivery = "at_least_once" // the attempt is repeated under the same event id
	AtMostOnce  run.Delivery = "at_most_once"  // if it may have been sent, the run ends as lost
)

// JobState is the roll-up of a job's triggers and runs, as people see it.
type JobState string

// The states of a job. If several apply, the first in this order is shown.
const (
	JobError     JobState = "error"     // a trigger cannot be evaluated
	JobExecuting JobState = "executing" // a trigger has a next fire, or a run is live
	JobPaused    JobState = "paused"    // every trigger that would fire is paused
	JobComplete  JobState = "complete"  // the triggers have no further fire
	JobInit      JobState = "init"      // nothing is scheduled: no trigger, or none enabled
)

// JobStates are all states, in the order in which they are shown.
var JobStates = []JobState{JobError, JobExecuting, JobPaused, JobComplete, JobInit}

// RollUp returns the state of the job from its triggers and from whether it has a live run.
func (j Job) RollUp(live bool) JobState {
	seen := map[JobState]bool{JobExecuting: live}
	for _, t := range j.Triggers {
		switch {
		case t.State == TriggerError:
			seen[JobError] = true
		case !j.Enabled || !t.Enabled:
		case t.State == TriggerComplete:
			seen[JobComplete] = true
		case t.Paused || j.Paused || j.AppPaused:
			seen[JobPaused] = true
		default:
			seen[JobExecuting] = true
		}
	}
	for _, state := range []JobState{JobError, JobExecuting, JobPaused, JobComplete} {
		if seen[state] {
			return state
		}
	}
	return JobInit
}

// Complete reports whether the job has triggers and all of them are complete. Unlike in JobComplete, a
// disabled trigger is not complete.
func (j JobSpec) Complete() bool {
	for _, t := range j.Triggers {
		if t.State != TriggerComplete {
			return false
		}
	}
	return len(j.Triggers) > 0
}

// Bounds of a job.
const (
	MaxTriggers = 100

	maxPriority    = 9
	MinDeleteAfter = time.Minute
)

// Validate returns everything wrong with j, as Problems with JSON pointers, or nil. Apply checks what depends on the
// current time, such as a time in the past.
func (j Job) Validate() error {
	var problems input.Problems
	input.CheckName(&problems, "/name", j.Name)
	input.CheckText(&problems, "/description", j.Description)
	input.CheckLink(&problems, "/runbook_url", j.RunbookURL)
	input.CheckRange(&problems, "/priority", j.Priority, 0, maxPriority)
	j.Labels.Check(&problems, "/labels")
	j.NodeLabels.Check(&problems, "/node_labels")
	if j.Delivery != "" {
		input.CheckEnum(&problems, "/delivery", "delivery", j.Delivery, []run.Delivery{AtLeastOnce, AtMostOnce})
	}
	j.Retry.Check(&problems, "/retry")
	j.checkConcurrency(&problems)
	j.checkCarryState(&problems)
	j.checkObjective(&problems)
	if j.DeleteAfterCompletion != 0 {
		j.DeleteAfterCompletion.CheckRange(&problems, "/delete_after_completion", MinDeleteAfter, input.MaxRetention)
	}
	checkAcknowledged(&problems, j.Acknowledge)
	wrong := j.Target.Validate()
	problems.AddError("/target", wrong)
	if j.Target.Alert != nil {
		problems.Add("/target/alert", input.CodeTargetKind, "only alerts have this kind of target; give the job a webhook, a lambda or a group")
	}
	input.CheckPayload(&problems, j.Payload)
	if wrong == nil {
		problems.AddError("/target", j.Target.TryTemplates(j.App, j.Name, j.Payload))
	}
	j.checkFollows(&problems)
	if len(j.Triggers) > MaxTriggers {
		problems.Add("/triggers", input.CodeTooMany, "job has %d triggers; the maximum is %d", len(j.Triggers), MaxTriggers)
		return problems
	}
	for _, name := range input.SortedKeys(j.Triggers) {
		path := input.Pointer("triggers", name)
		input.CheckName(&problems, path, name)
		var wrong input.Problems
		j.Triggers[name].check(&wrong, j.Identity(name))
		problems.AddError(path, wrong.Err())
	}
	return problems.Err()
}

// checkCarryState adds the reasons why the runs of j cannot carry a state.
func (j JobSpec) checkCarryState(problems *input.Problems) {
	if !j.CarryState {
		return
	}
	const path = "/carry_state"
	if p := j.ConcurrencyPolicy; p != run.ConcurrencyForbid && p != run.ConcurrencyQueue || j.Slots() != 1 {
		problems.Add(path, input.CodeCarryState, "carry_state needs runs that never overlap, or one would overwrite the state of another; "+
			"set concurrency_policy to forbid or queue, and leave out max_concurrency or set it to 1")
	}
	switch {
	case j.Target.Group != nil && j.Target.Group.XXLJob != nil:
		problems.Add(path, input.CodeCarryState,
			"executors of XXL-JOB return no state; leave out carry_state, or call the workers with another target")
	case j.Target.Group != nil && j.Target.Group.Strategy == target.Broadcast:
		problems.Add(path, input.CodeCarryState, "the shards of a broadcast run at the same time and share no state; leave out carry_state, or "+
			"choose another strategy")
	case j.Target.Lambda != nil && j.Target.Lambda.Invocation == target.InvokeEvent && j.Target.Lambda.Callback == nil:
		problems.Add(path, input.CodeCarryState,
			"a function that is invoked as Event returns nothing; invoke it as RequestResponse, or set callback "+
				"so that it returns a state with complete")
	}
}

// CheckKept applies Target.CheckKept to each target of a job, with JSON pointers in j.
func (j Job) CheckKept(old Job) error {
	var problems input.Problems
	problems.AddError("/target", j.Target.CheckKept(old.Target))
	before := map[run.FollowEvent]*target.Target{}
	for event, follow := range old.EachFollow() {
		before[event] = follow.Target()
	}
	for event, follow := range j.EachFollow() {
		if to := follow.Target(); to != nil && before[event] != nil {
			problems.AddError("/"+string(event), to.CheckKept(*before[event]))
		}
	}
	return problems.Err()
}

// JobDefaults are values of an app for fields that its jobs leave out. They are filled in when a job is declared, so
// a later change of them changes no stored job.
type JobDefaults struct {
	// Timezone is for triggers with a wall-clock expression.
	Timezone string `json:"timezone,omitempty"`
	// Retry is for jobs without one; the two are not merged.
	Retry *run.Retry `json:"retry,omitempty"`
	// Headers are added to those of webhooks and of requests to endpoint groups; a target's own headers win.
	Headers           map[string]string     `json:"headers,omitempty" schema:"each_max=8192,max=50"`
	MisfirePolicy     MisfirePolicy         `json:"misfire_policy,omitempty"`
	ConcurrencyPolicy run.ConcurrencyPolicy `json:"concurrency_policy,omitempty"`
}

// LeaveToApp clears the defaults of SetDefaults in a decoded job that JobDefaults.Fill may set.
func (j *JobSpec) LeaveToApp() { j.Retry, j.ConcurrencyPolicy = run.Retry{}, "" }

// LeaveToApp clears the defaults of SetDefaults in a decoded trigger that JobDefaults.Fill may set.
func (t *TriggerSpec) LeaveToApp() { t.MisfirePolicy = "" }

// Fill sets the values that a job leaves out to those of d, which may be nil, or else to the general ones. LeaveToApp
// must have been called before the job was decoded.
func (d *JobDefaults) Fill(j *Job) {
	if d == nil {
		d = &JobDefaults{}
	}
	j.ConcurrencyPolicy = cmp.Or(j.ConcurrencyPolicy, d.ConcurrencyPolicy, run.ConcurrencyAllow)
	if j.Retry.IsZero() && d.Retry != nil {
		j.Retry = *d.Retry
	}
	j.Retry = j.Retry.OrDefault()
	if own, has := j.Target.Headers(); has && len(d.Headers) > 0 {
		j.Target = j.Target.WithHeaders(d.headers(own))
	}
	j.Triggers = maps.Clone(j.Triggers)
	for name, t := range j.Triggers {
		t.MisfirePolicy = cmp.Or(t.MisfirePolicy, d.MisfirePolicy, FireOnce)
		if t.NeedsTimezone() {
			t.Timezone = d.Timezone
		}
		j.Triggers[name] = t
	}
}

// headers returns the headers of a target with the defaults. Names of headers are compared without regard to case.
func (d *JobDefaults) headers(own map[string]string) map[string]string {
	all := map[string]string{}
	taken := map[string]bool{}
	for name, value := range own {
		all[name], taken[strings.ToLower(name)] = value, true
	}
	for name, value := range d.Headers {
		if !taken[strings.ToLower(name)] {
			all[name] = value
		}
	}
	return all
}

// empty reports whether d sets no default.
func (d *JobDefaults) empty() bool {
	return d.Timezone == "" && d.Retry == nil && len(d.Headers) == 0 && d.MisfirePolicy == "" && d.ConcurrencyPolicy == ""
}

// Normal returns the defaults as they are stored: nil if they are empty.
func (d *JobDefaults) Normal() *JobDefaults {
	if d == nil || d.empty() {
		return nil
	}
	return d
}

// Check adds everything wrong with d, by the rules of the fields that it fills.
func (d *JobDefaults) Check(problems *input.Problems, at string) {
	const trigger = "any"
	hook := target.Webhook{URL: "https://example.com"}
	hook.SetDefaults()
	job := Job{App: trigger, Name: trigger, JobSpec: JobSpec{Target: target.Target{Webhook: &hook}, Triggers: map[string]Trigger{trigger: {
		TriggerSpec: TriggerSpec{Schedule: Schedule{Expression: "0 0 * * *"}, MisfireAfter: DefaultMisfireAfter},
	}}}}
	d.Fill(&job)
	var wrong input.Problems
	wrong.AddError("", job.Validate())
	for _, problem := range wrong {
		for _, part := range []struct{ in, out string }{
			{"/target/webhook/headers", "/headers"}, {"/triggers/any", ""}, {"", ""},
		} {
			if below, ok := strings.CutPrefix(problem.Path, part.in); ok {
				problems.Add(at+part.out+below, problem.Code, "%s", problem.Message)
				break
			}
		}
	}
	if d.Retry != nil && d.Retry.IsZero() {
		problems.Add(at+"/retry/max_attempts", input.CodeRequired,
			"max_attempts is missing; leave retry out if jobs are to have the general default")
	}
}

// NeedsTimezone reports whether s follows the wall clock and names no zone.
func (s Schedule) NeedsTimezone() bool {
	return s.Timezone == "" && (s.OnExcluded.MovesByDays() || schedule.WallClock(s.Expression, s.Dialect))
}

// CheckTimezones returns, as Problems or nil, the triggers that need a zone and name none. Stored jobs always name
// one, because declaring a job fills it in.
func (j JobSpec) CheckTimezones() error {
	var problems input.Problems
	for _, name := range input.SortedKeys(j.Triggers) {
		problems.AddError(input.Pointer("triggers", name), j.Triggers[name].CheckTimezone())
	}
	return problems.Err()
}

// CheckTimezone returns a *Problem if s needs a zone and names none, or nil. Validate reports this for a local time
// in dialect at, which may name an offset instead.
func (s Schedule) CheckTimezone() error {
	var wrong input.Problems
	s.Check(&wrong, "any")
	if !s.NeedsTimezone() || slices.ContainsFunc(wrong, func(p input.Problem) bool { return p.Code == input.CodeTimeZoneMissing }) {
		return nil
	}
	return &input.Problem{Path: "/timezone", Code: input.CodeTZRequired, Message: "timezone is missing: expression " +
		input.Echo(s.Expression) +
		" follows the wall clock of a place; name its zone, such as Europe/Berlin, or UTC if that is meant"}
}

// RunRequest is the optional body of a request to run a job by hand.
type RunRequest struct {
	// Payload replaces the job's payload for this run, unless it is nil.
	Payload json.RawMessage `json:"payload,omitempty"`
}

// CheckPayloadOf returns, as Problems or nil, why a run of j cannot have a payload: it is invalid, a template cannot
// be filled in with it, or the target sends no payload.
func (j Job) CheckPayloadOf(payload json.RawMessage) error {
	if payload == nil {
		return nil
	}
	if err := run.CheckPayload(payload); err != nil {
		return err
	}
	var problems input.Problems
	problems.AddError("/payload", j.Target.TryTemplates(j.App, j.Name, payload))
	var warnings input.Problems
	j.Target.Warn(payload, &warnings)
	for _, one := range warnings {
		if one.Path == "/payload" {
			problems = append(problems, one)
		}
	}
	return problems.Err()
}
