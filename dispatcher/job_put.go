package dispatcher

import (
	"slices"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// A change of a definition is decided here, without a database: from everything that it depends on, as of one moment, follows
// everything that is to be written.

// JobBefore is what a PUT of a job depends on. Of an unchanged job only Old, Calendars, Bounds and Pauses matter.
type JobBefore struct {
	Old   *Job // as it is stored; nil: it is new
	Prior Prior
	// Calendars are those of the app, and Pauses those of its pauses that hold the job.
	Calendars Calendars
	Pauses    []AppPause
	Bounds    *target.Bounds // of the app
	Used      target.Usage   // by the app
	Defaults  *JobDefaults   // of the app, for what is attached to the job
	// Group is the one that the job names; nil: it names none, or there is none.
	Group    *target.EndpointGroup
	Attached map[run.FollowEvent]AttachedBefore
	Follows  FollowGraph
	// Keys tells that the node has keys to store secrets with.
	Keys bool
}

// JobChange is what becomes of a job that is put.
type JobChange struct {
	Job    Job       // as it is to be stored, but with the values of its secrets
	Missed []Misfire // of fires that were due under what it replaces
	// Jobs and Triggers are how many more the app has.
	Jobs, Triggers int
	Attached       map[run.FollowEvent]AttachedChange // to write; those of other events go
	Followers      []Follower
}

// Unchanged returns the job as it is stored, with its warnings, if a PUT of declared leaves it so. What is outside the bounds of its
// app is refused also then.
func (b JobBefore) Unchanged(declared Job) (Job, bool) {
	if b.Old == nil || declared.CheckBounds(b.Bounds) != nil || !b.Old.Declares(declared) {
		return Job{}, false
	}
	return b.Shown(*b.Old), true
}

// Shown returns a job as people see it: with its warnings, and the pauses that hold it.
func (b JobBefore) Shown(job Job) Job {
	warnings := input.Problems(job.Warn(b.Calendars))
	warnings.AddError("", job.CheckBounds(b.Bounds)) // its attempts fail
	job.Warnings, job.Pauses = warnings, nil
	if job.AppPaused {
		job.Pauses = b.Pauses
	}
	return job
}

// Put decides what becomes of declared at now. The error is Problems.
func (b JobBefore) Put(declared Job, now time.Time) (c JobChange, err error) {
	c.Jobs, c.Triggers = 1, len(declared.Triggers)
	if b.Old != nil {
		c.Jobs, c.Triggers = 0, c.Triggers-len(b.Old.Triggers)
	}
	if err := b.Admit(declared, c.Jobs, c.Triggers); err != nil {
		return c, err
	}
	declared.AppPaused = len(b.Pauses) > 0
	if c.Job, c.Missed, err = Apply(b.Old, declared, b.Prior, b.Calendars, now); err != nil {
		return c, err
	}
	if err := b.CheckSecrets(c.Job); err != nil {
		return c, err
	}
	c.Attached, c.Followers, err = b.Follow(c.Job, now)
	return c, err
}

// CheckSecrets returns which secrets of the target of a job cannot be stored, as Problems.
func (b JobBefore) CheckSecrets(job Job) error {
	var before map[string]target.Secret
	if b.Old != nil {
		before = target.Secrets(b.Old.Target)
	}
	return target.CheckStorable("/target", target.Secrets(job.Target), before, b.Keys)
}

// Admit returns what of a job its app does not allow, as Problems: it would have so many more jobs and triggers.
func (b JobBefore) Admit(job Job, jobs, triggers int) error {
	var problems input.Problems
	problems.AddError("", job.CheckBounds(b.Bounds))
	switch name := job.Target.GroupName(); {
	case name == "":
	case b.Group == nil:
		problems.Add("/target/group/name", input.CodeGroupUnknown,
			"group %s does not exist in this app; make it first, or name one that does", input.Echo(name))
	default:
		problems.AddError("", job.Target.CheckGroup(*b.Group))
	}
	if most := int64(b.Bounds.Quotas.Jobs); jobs > 0 && b.Used.Jobs+int64(jobs) > most {
		problems.Add("/name", input.CodeBoundQuota,
			"app %s has %d jobs, and its bounds allow %d (quotas.jobs); delete some, or ask an operator for more", job.App, b.Used.Jobs, most)
	}
	if n, most := b.Used.Triggers+int64(triggers), int64(b.Bounds.Quotas.Triggers); triggers > 0 && n > most {
		problems.Add("/triggers", input.CodeBoundQuota,
			"app %s would have %d triggers, and its bounds allow %d (quotas.triggers); remove some, or ask an operator for more",
			job.App, n, most)
	}
	return problems.Err()
}

// Follow decides what follows a job, and what makes the deliveries to its targets, by event. The error is Problems.
func (b JobBefore) Follow(job Job, now time.Time) (map[run.FollowEvent]AttachedChange, []Follower, error) {
	var problems input.Problems
	attached := map[run.FollowEvent]AttachedChange{}
	for event, follow := range job.EachFollow() {
		if follow.Target == nil {
			continue
		}
		one := job.Attached(event)
		b.Defaults.Fill(&one)
		change, err := b.Attached[event].Put(one, b.Keys, now)
		problems.AddError("/"+string(event), err)
		attached[event] = change
	}
	followers, err := b.Follows.FollowersOf(job, b.Bounds.Quotas)
	problems.AddError("", err)
	return attached, followers, problems.Err()
}

// AttachedBefore is the row of an attached job before it is put; the zero value: it never had one.
type AttachedBefore struct {
	Revision int64 // goes on if it was deleted
	Old      *Job  // nil: there is none
}

// AttachedChange is what becomes of an attached job.
type AttachedChange struct {
	Job  Job  // as it is to be stored, but with the values of its secrets
	Old  *Job // nil: there was none
	Same bool // nothing is to be written
}

// Put decides what becomes of an attached job, as it is declared, at now. The error is Problems, with JSON pointers in the job.
func (b AttachedBefore) Put(job Job, keys bool, now time.Time) (AttachedChange, error) {
	job.Revision, job.CreatedAt, job.UpdatedAt, job.State = b.Revision+1, now, now, JobInit
	change := AttachedChange{Job: job}
	var before map[string]target.Secret
	if b.Old != nil {
		old := job
		old.Target, old.Retry = b.Old.Target, b.Old.Retry
		change.Old, change.Job.CreatedAt, before = &old, b.Old.CreatedAt, target.Secrets(old.Target)
		if err := job.CheckKept(old); err != nil {
			return change, err
		}
		change.Same = old.Declares(job)
	}
	return change, target.CheckStorable("/target", target.Secrets(job.Target), before, keys)
}

// jobSteps bounds what it costs to find the next fires of all triggers of a job to some 20 ms, because a
// transaction waits for it. A hundred triggers of real schedules take a twentieth of it.
const jobSteps = 40 * schedule.StepsPerSearch

// CheckCost returns what is wrong with a job whose schedules take too long to evaluate, as Problems, or
// nil. Anything else that is wrong with it is left to Validate and Apply.
func (j Job) CheckCost(calendars Calendars, now time.Time) error {
	var problems input.Problems
	budget := schedule.NewSteps(jobSteps)
	for _, name := range input.SortedKeys(j.Triggers) {
		t := j.Triggers[name]
		s, err := t.Parse(j.Identity(name), now, calendars)
		if err != nil {
			continue
		}
		s.ChargeRepeats(budget)
		next, ok, err := s.FindWithin(budget, now)
		if err == nil && ok {
			_, _, err = s.FindWithin(budget, next)
		}
		if err == nil {
			continue
		}
		problems.AddError(input.Pointer("triggers", name), err)
		if budget.Left() < schedule.StepsPerSearch {
			break // the others would say the same
		}
	}
	return problems.Err()
}

// StepRetries tells why a backfill or a bulk action does not go on.
type StepRetries struct {
	// Waits says why it does not go on now, such as a quota that is used up or a step that failed; empty: it does.
	Waits string `json:"waits,omitempty"`
	// Tries counts how often its next step has failed, and TryAt is when it is tried again; nil: it has not failed.
	Tries int `json:"tries,omitempty"`
	// When a step that failed is tried again.
	TryAt *time.Time `json:"try_at,omitempty"`
}

// OpenSteps is a backfill or a bulk action that has not ended, and when its next step is tried again; zero: it has not failed.
type OpenSteps struct {
	ID    int64
	TryAt time.Time
}

// WarningCodes are the codes of warnings that Job.Acknowledge answers. Warnings of other codes say that a job does not
// work, such as one outside the bounds of its app, and stay.
var WarningCodes = append([]string{
	input.CodeAuthPlaintext, input.CodeBodyMethod, input.CodeExecutorTimeout, input.CodeLambdaRegion, input.CodePayloadUnused,
}, schedule.WarningCodes...)

// Warn returns what is allowed but probably a mistake, without what the job acknowledges; calendars are those of its
// app. Schedules are judged from UpdatedAt on.
func (j Job) Warn(calendars Calendars) []input.Problem {
	var problems input.Problems
	j.Target.Warn(j.Payload, &problems)
	for _, name := range input.SortedKeys(j.Triggers) {
		warnings := j.Triggers[name].warn(j.Identity(name), calendars, j.UpdatedAt)
		problems.AddError(input.Pointer("triggers", name), warnings.Err())
	}
	return j.unanswered(problems)
}

// unanswered returns warnings without those that the job acknowledges.
func (j Job) unanswered(warnings []input.Problem) []input.Problem {
	return slices.DeleteFunc(warnings, func(w input.Problem) bool { return slices.Contains(j.Acknowledge, w.Code) })
}

// checkAcknowledged reports codes that no warning has.
func checkAcknowledged(problems *input.Problems, codes []string) {
	if most := len(WarningCodes); len(codes) > most {
		problems.Add("/acknowledge", input.CodeTooMany, "%d codes are given; there are %d", len(codes), most)
		return
	}
	for i, code := range codes {
		at := input.Pointer("acknowledge", strconv.Itoa(i))
		switch {
		case !slices.Contains(WarningCodes, code):
			problems.Add(at, input.CodeEnum, "%s is not the code of a warning%s; the codes are listed under Warnings in the reference of the API",
				input.Echo(code), input.DidYouMean(code, WarningCodes))
		case slices.Contains(codes[:i], code):
			problems.Add(at, input.CodeEnum, "%s is given twice", input.Echo(code))
		}
	}
}

// WarnOfCallback warns of a job whose attempts all fail because no node knows the URL to which callbacks go.
func (j Job) WarnOfCallback() []input.Problem {
	if j.Target.Callback() == nil {
		return nil
	}
	return []input.Problem{{Path: "/target/" + string(j.Target.Kind()) + "/callback", Code: input.CodeCallbackURL,
		Message: "the node does not " +
			"know the URL of this API, so it can tell no target where to call back; start the nodes with --callback-url (CARILLON_CALLBACK_URL)"}}
}

// WarnOfRegion warns of a function whose ARN names another region than the node's: calls cross regions, or the ARN was
// copied from another installation. A job that names the region in its own field means it. Empty: the node has none.
func (j Job) WarnOfRegion(node string) []input.Problem {
	l := j.Target.Lambda
	if l == nil || node == "" || l.Region != "" || l.FunctionRegion() == "" || l.FunctionRegion() == node {
		return nil
	}
	return j.unanswered([]input.Problem{{Path: "/target/lambda/function", Code: input.CodeLambdaRegion, Message: "the function is in " +
		l.FunctionRegion() + ", and the nodes are in " + node + "; if that is meant, name the region in region, too"}})
}

// CheckBounds returns what of j is outside the bounds of its app, as Problems with JSON pointers in the job, or nil: of its own
// target, and of those of what follows it.
func (j Job) CheckBounds(bounds *target.Bounds) error {
	var problems input.Problems
	problems.AddError("", bounds.CheckTarget(j.App, j.Target))
	for event, follow := range j.EachFollow() {
		if follow.Target != nil {
			problems.AddError("/"+string(event), bounds.CheckTarget(j.App, *follow.Target))
		}
	}
	return problems.Err()
}
