package dispatcher

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Job is a target, what is sent to it, and the triggers that say when.
type Job struct {
	// App and Name identify the job; they are chosen by the client. A JobRename changes Name.
	App  string `json:"app"`
	Name string `json:"name"`
	// Origin is the name that keys, event ids and H are derived from, if it is not Name: the one that the job was created
	// with. If another job had that origin, "~2" follows it, or "~3" and so on.
	Origin string `json:"origin,omitempty" body:"-"`
	JobSpec
	JobStatus `body:"-"`
}

// JobSpec is what a person declares of a job.
type JobSpec struct {
	// Description is free text of at most 1024 characters.
	Description string `json:"description"`
	// Enabled is whether the triggers of the job fire. A disabled trigger misses nothing: when
	// it is enabled again, it starts with its next scheduled time.
	Enabled bool `json:"enabled"`
	// Priority orders the fires of the app that wait for a node: higher goes first; 0 to
	// MaxPriority.
	Priority int `json:"priority"`
	// Labels are for people and programs to tell jobs apart, such as team=payments. Pauses of the app may choose jobs by them.
	Labels input.Labels `json:"labels,omitempty"`
	// NodeLabels are the labels a node must have to run the job; empty: any node may. Fires wait
	// while no node has them.
	NodeLabels input.Labels `json:"node_labels,omitempty"`
	JobPolicies
	// CarryState lets each run get a small state from the run before it and return one for the next; see CarriedState. It
	// needs ConcurrencyForbid or ConcurrencyQueue with one slot.
	CarryState bool `json:"carry_state,omitempty"`
	// Objective is how many of its fires are to begin in time; nil: it has none.
	Objective *Objective `json:"objective,omitempty"`
	// DeleteAfterCompletion is the time from State becoming COMPLETE until the job is deleted, from
	// MinDeleteAfter to MaxRetention; 0: never. A job that leaves COMPLETE before that stays.
	DeleteAfterCompletion input.Duration `json:"delete_after_completion,omitempty"`
	// Acknowledge lists codes of warnings, each one of WarningCodes, that are meant: Warnings leave them out.
	Acknowledge []string `json:"acknowledge,omitempty"`
	// Target is what a run calls.
	Target target.Target `json:"target"`
	// Payload is any JSON value of at most 256 KiB, nested at most 32 deep; it becomes the body.
	Payload json.RawMessage `json:"payload,omitempty"`
	JobFollows
	// Triggers holds the schedules by name; at most 100.
	Triggers map[string]Trigger `json:"triggers"`
}

// JobPolicies say when a run begins next to others, and what happens if it fails.
type JobPolicies struct {
	// Delivery says what happens to an attempt whose outcome is unknown.
	Delivery run.Delivery `json:"delivery"`
	// Retry says whether and when a failed run is attempted again.
	Retry run.Retry `json:"retry,omitzero"`
	// ConcurrencyPolicy says what happens to a run when all slots are taken; empty means
	// ConcurrencyAllow.
	ConcurrencyPolicy run.ConcurrencyPolicy `json:"concurrency_policy"`
	// MaxConcurrency is how many runs of the job there may be at once, over all nodes, at most
	// MaxMaxConcurrency; 0 means no bound with ConcurrencyAllow, else one run.
	MaxConcurrency int `json:"max_concurrency"`
	// QueueLimit is how many runs may wait for a slot; 0 means DefaultQueueLimit.
	QueueLimit int `json:"queue_limit"`
}

// JobFollows are what follows the runs and the missed fires of a job; nil: nothing does.
type JobFollows struct {
	OnSuccess *Follow `json:"on_success,omitempty"`
	OnFailure *Follow `json:"on_failure,omitempty"`
	OnMisfire *Follow `json:"on_misfire,omitempty"`
}

// JobStatus is what Carillon knows of a job.
type JobStatus struct {
	// Paused is an operator's pause of the whole job.
	Paused bool `json:"paused"`
	// Pause says who paused it, when, and why.
	Pause
	// Pauses are those of the app that hold the job.
	Pauses []AppPause `json:"pauses,omitempty"`
	// AppPaused tells that the triggers of the job do not fire because of a pause of its app.
	AppPaused bool `json:"-"`
	// State is the roll-up of the job's triggers and live runs. It is for people: no fire depends on
	// it. A change of the definition writes it at once; otherwise it follows within a handler
	// interval, or several with many thousands of jobs.
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
	j.ConcurrencyPolicy, j.QueueLimit = run.ConcurrencyAllow, DefaultQueueLimit
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
	JobError     JobState = "ERROR"     // a trigger cannot be evaluated
	JobExecuting JobState = "EXECUTING" // a trigger has a next fire, or a run is live
	JobPaused    JobState = "PAUSED"    // every trigger that would fire is paused
	JobComplete  JobState = "COMPLETE"  // the triggers have no further fire
	JobInit      JobState = "INIT"      // nothing is scheduled: no trigger, or none enabled
)

// JobStates are all of them, in the order in which they are shown.
var JobStates = []JobState{JobError, JobExecuting, JobPaused, JobComplete, JobInit}

// RollUp returns the state of the job by its triggers, and by whether it has a live run.
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

	MaxPriority    = 9
	MinDeleteAfter = time.Minute
)

// Validate returns everything wrong with j, as Problems with JSON pointers, or nil. Apply
// judges what depends on the current time, such as a time in the past.
func (j Job) Validate() error {
	var problems input.Problems
	input.CheckName(&problems, "/name", j.Name)
	input.CheckText(&problems, "/description", j.Description)
	input.CheckRange(&problems, "/priority", j.Priority, 0, MaxPriority)
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

// checkCarryState adds why the runs of j cannot carry a state.
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

// CheckKept is Target.CheckKept for each target of a job. The pointers are those in j.
func (j Job) CheckKept(old Job) error {
	var problems input.Problems
	problems.AddError("/target", j.Target.CheckKept(old.Target))
	before := map[run.FollowEvent]*Follow{}
	for event, follow := range old.EachFollow() {
		before[event] = follow
	}
	for event, follow := range j.EachFollow() {
		if was := before[event]; follow.Target != nil && was != nil && was.Target != nil {
			problems.AddError("/"+string(event)+"/target", follow.Target.CheckKept(*was.Target))
		}
	}
	return problems.Err()
}

// CertificateEnd returns when the first client certificate of a job's own targets ends; nil: there is none.
func (j Job) CertificateEnd() *time.Time {
	ends := []*time.Time{j.Target.CertificateEnd()}
	for _, follow := range j.EachFollow() {
		if follow.Target != nil {
			ends = append(ends, follow.Target.CertificateEnd())
		}
	}
	ends = slices.DeleteFunc(ends, func(end *time.Time) bool { return end == nil })
	if len(ends) == 0 {
		return nil
	}
	return slices.MinFunc(ends, func(a, b *time.Time) int { return a.Compare(*b) })
}
