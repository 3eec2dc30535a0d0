package dispatcher

import (
	"encoding/json"
	"time"
)

// Job is a target, what is sent to it, and the triggers that say when.
type Job struct {
	// App and Name identify the job; they are chosen by the client and cannot change.
	App  string `json:"app"`
	Name string `json:"name"`
	// Description is free text of at most 1024 characters.
	Description string `json:"description"`
	// Enabled is whether the triggers of the job fire. A disabled trigger owes no fires: when
	// it is enabled again, it begins with the next instant.
	Enabled bool `json:"enabled"`
	// Priority says which fires of the app go first where they wait for a node: those of a
	// higher one; 0 to MaxPriority.
	Priority int `json:"priority"`
	// NodeLabels are what a node must have to run the job; empty: any node may. While no node
	// has them, fires are owed.
	NodeLabels Labels `json:"node_labels,omitempty"`
	// Delivery says what is done about an attempt of which nobody can say how it ended.
	Delivery Delivery `json:"delivery"`
	// Retry says whether and when a failed run is attempted again.
	Retry Retry `json:"retry,omitzero"`
	// ConcurrencyPolicy says what becomes of a run that finds all slots taken; empty means
	// ConcurrencyAllow.
	ConcurrencyPolicy ConcurrencyPolicy `json:"concurrency_policy"`
	// MaxConcurrency is how many runs of the job there may be at once, over all nodes, at most
	// MaxMaxConcurrency; 0: no bound with ConcurrencyAllow, and else one.
	MaxConcurrency int `json:"max_concurrency"`
	// QueueLimit is how many runs may wait for a slot; 0 means DefaultQueueLimit.
	QueueLimit int `json:"queue_limit"`
	// DeleteAfterCompletion is how long after State has become COMPLETE the job is deleted, from
	// MinDeleteAfter to MaxRetention; 0: never. A job that is not complete throughout stays.
	DeleteAfterCompletion Duration `json:"delete_after_completion,omitempty"`
	// Target is what a run calls.
	Target Target `json:"target"`
	// Payload is any JSON value of at most 256 KiB, nested at most 32 deep; it becomes the body.
	Payload json.RawMessage `json:"payload,omitempty"`
	// Triggers holds the schedules by name; at most 100.
	Triggers map[string]Trigger `json:"triggers"`

	// Paused is an operator's pause of the whole job. Read-only, as all below.
	Paused bool `json:"paused"`
	// State is the roll-up of the job's triggers and live runs, for people: no fire depends on it. It
	// is written with each change of the definition, and else follows within a handler's interval or,
	// among many thousands of jobs, some of them.
	State JobState `json:"state"`
	// Revision counts the changes of the job; it is its ETag.
	Revision  int64     `json:"revision"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	// Warnings are faults that do not stop the job from being stored.
	Warnings []Problem `json:"warnings,omitempty"`
}

// SetDefaults gives a decoded job the values of fields that its JSON leaves out.
func (j *Job) SetDefaults() {
	j.Enabled, j.Delivery = true, AtLeastOnce
	j.Retry.SetDefaults()
	j.ConcurrencyPolicy, j.QueueLimit = ConcurrencyAllow, DefaultQueueLimit
}

// Delivery is a policy for attempts whose node died or was cut off. Empty means AtLeastOnce.
type Delivery string

// The policies of delivery.
const (
	AtLeastOnce Delivery = "at_least_once" // it is repeated, under the same event id
	AtMostOnce  Delivery = "at_most_once"  // if it may have been sent, the run ends as lost
)

// JobState is the roll-up of a job's triggers and runs, as people see it.
type JobState string

// The states of a job. Of several that hold, the first in this order is shown.
const (
	JobError     JobState = "ERROR"     // a trigger cannot be evaluated
	JobExecuting JobState = "EXECUTING" // a trigger is armed, or a run is live
	JobPaused    JobState = "PAUSED"    // what would be armed is paused
	JobComplete  JobState = "COMPLETE"  // the triggers have no further fire
	JobInit      JobState = "INIT"      // nothing is scheduled: no trigger, or none enabled
)

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
		case t.Paused || j.Paused:
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

// Complete tells whether no trigger of the job has a further fire, and there is one at all. Unlike for
// JobComplete, a trigger that is disabled is not over.
func (j Job) Complete() bool {
	for _, t := range j.Triggers {
		if t.State != TriggerComplete {
			return false
		}
	}
	return len(j.Triggers) > 0
}

// Bounds of a job.
const (
	MaxTriggers     = 100
	MaxPayload      = 256 << 10 // bytes
	MaxPayloadDepth = 32
	MaxPriority     = 9
	MinDeleteAfter  = time.Minute
)

// Validate returns everything wrong with j, as Faults with JSON pointers, or nil. What
// depends on the present (an instant in the past) is for Revise to judge.
func (j Job) Validate() error {
	var problems Problems
	CheckName(&problems, "/name", j.Name)
	checkText(&problems, "/description", j.Description)
	checkRange(&problems, "/priority", j.Priority, 0, MaxPriority)
	j.NodeLabels.check(&problems, "/node_labels")
	if j.Delivery != "" && j.Delivery != AtLeastOnce && j.Delivery != AtMostOnce {
		problems.Add("/delivery", CodeEnum, "delivery %s is not one of %s, %s", Echo(string(j.Delivery)), AtLeastOnce, AtMostOnce)
	}
	j.Retry.check(&problems, "/retry")
	j.checkConcurrency(&problems)
	if j.DeleteAfterCompletion != 0 {
		j.DeleteAfterCompletion.check(&problems, "/delete_after_completion", MinDeleteAfter, MaxRetention)
	}
	wrong := j.Target.Validate()
	problems.AddError("/target", wrong)
	checkPayload(&problems, j.Payload)
	if wrong == nil {
		problems.AddError("/target", j.tryTemplates())
	}
	if len(j.Triggers) > MaxTriggers {
		problems.Add("/triggers", CodeTooMany, "job has %d triggers; the maximum is %d", len(j.Triggers), MaxTriggers)
		return problems
	}
	for _, name := range sortedKeys(j.Triggers) {
		path := Pointer("triggers", name)
		CheckName(&problems, path, name)
		var wrong Problems
		j.Triggers[name].check(&wrong, Identity(j.App, j.Name, name))
		problems.AddError(path, wrong.Err())
	}
	return problems.Err()
}

// Warn returns what is allowed but probably not meant; calendars are those of its app.
// Schedules are judged from UpdatedAt on.
func (j Job) Warn(calendars Calendars) []Problem {
	var problems Problems
	if one := j.Target.one(); one != nil {
		one.warn(j, &problems)
	}
	for _, name := range sortedKeys(j.Triggers) {
		warnings := j.Triggers[name].warn(Identity(j.App, j.Name, name), calendars, j.UpdatedAt)
		problems.AddError(Pointer("triggers", name), warnings.Err())
	}
	return problems
}

func checkPayload(problems *Problems, payload json.RawMessage) {
	if len(payload) > MaxPayload {
		problems.Add("/payload", CodePayloadTooLarge, "payload has %d bytes; the maximum is 256 KiB", len(payload))
		return
	}
	if len(payload) == 0 {
		return
	}
	if !json.Valid(payload) {
		problems.Add("/payload", CodeJSONSyntax, "payload is not JSON")
		return
	}
	if depth := JSONDepth(payload); depth > MaxPayloadDepth {
		problems.Add("/payload", CodeJSONDepth, "payload is nested %d deep; the maximum is %d", depth, MaxPayloadDepth)
	}
}

// JSONDepth returns how deep valid JSON nests; a scalar has depth 0.
func JSONDepth(text []byte) int {
	depth, deepest, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}
