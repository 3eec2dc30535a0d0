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

// Changes of definitions are decided here, without a database: everything that they depend on goes in, and everything
// to write comes out.

// JobBefore holds the input of a PUT. For an unchanged job only Old, Calendars, Bounds and Pauses matter.
type JobBefore struct {
	Old   *Job // as it is stored; nil if it is new
	Prior Prior
	// Calendars are the calendars of the app, and Pauses are its pauses that hold the job.
	Calendars Calendars
	Pauses    []AppPause
	Bounds    *target.Bounds // of the app
	Used      target.Usage   // by the app
	Defaults  *JobDefaults   // of the app, for attached jobs
	// Group is the group that the job names; nil if it names none, or the group does not exist.
	Group    *target.EndpointGroup
	Attached map[run.FollowEvent]AttachedBefore
	Follows  FollowGraph
	// Keys is true if the node has keys to encrypt secrets.
	Keys bool
}

// JobChange is the effect of a PUT of a job.
type JobChange struct {
	Job    Job       // as it is to be stored, but with the values of its secrets
	Missed []Misfire // of fires that were due before the change
	// Jobs and Triggers are how many more the app has afterwards.
	Jobs, Triggers int
	Attached       map[run.FollowEvent]AttachedChange // to write; those of other events are removed
	Followers      []Follower
}

// Unchanged returns the stored job, with its warnings, if a PUT of declared would not change it. A job outside the
// bounds of its app is refused even then.
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
	warnings.AddError("", b.Follows.warn(job))
	job.Warnings, job.Pauses = warnings, nil
	if job.AppPaused {
		job.Pauses = b.Pauses
	}
	return job
}

// Put returns the effect of declared at now. The error is Problems.
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

// CheckSecrets returns, as Problems, the secrets of a job's target that cannot be stored.
func (b JobBefore) CheckSecrets(job Job) error {
	var before map[string]target.Secret
	if b.Old != nil {
		before = target.Secrets(b.Old.Target)
	}
	return target.CheckStorable("/target", target.Secrets(job.Target), before, b.Keys)
}

// Admit returns, as Problems, what the app does not allow. The app would have so many more jobs and triggers.
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

// Follow returns the attached jobs, which deliver to the destinations of job, and its followers. The error is
// Problems.
func (b JobBefore) Follow(job Job, now time.Time) (map[run.FollowEvent]AttachedChange, []Follower, error) {
	var problems input.Problems
	attached := map[run.FollowEvent]AttachedChange{}
	for event, follow := range job.EachFollow() {
		if follow.Target() == nil {
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

// AttachedBefore is the row of an attached job before a PUT; the zero value if it never had one.
type AttachedBefore struct {
	Revision int64 // kept when it was deleted
	Old      *Job  // nil if it has none
}

// AttachedChange is the effect of a PUT on an attached job.
type AttachedChange struct {
	Job  Job  // as it is to be stored, but with the values of its secrets
	Old  *Job // nil if there was none
	Same bool // no change to write
}

// Put returns the effect of declaring an attached job at now. The error is Problems, with JSON pointers in its target.
func (b AttachedBefore) Put(job Job, keys bool, now time.Time) (AttachedChange, error) {
	job.Revision, job.CreatedAt, job.UpdatedAt, job.State = b.Revision+1, now, now, JobInit
	change := AttachedChange{Job: job}
	var before map[string]target.Secret
	if b.Old != nil {
		old := job
		old.Target, old.Retry = b.Old.Target, b.Old.Retry
		change.Old, change.Job.CreatedAt, before = &old, b.Old.CreatedAt, target.Secrets(old.Target)
		if err := job.Target.CheckKept(old.Target); err != nil {
			return change, err
		}
		change.Same = old.Declares(job)
	}
	return change, target.CheckStorable("", target.Secrets(job.Target), before, keys)
}

// jobSteps bounds the time to find the next fires of all triggers of a job to some 20 ms, because a transaction waits
// for it. A hundred triggers with realistic schedules take a twentieth of it.
const jobSteps = 40 * schedule.StepsPerSearch

// CheckCost returns Problems if the schedules of a job take too long to evaluate, else nil. It checks nothing else.
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

// StepRetries explains why a backfill or a bulk action does not go on.
type StepRetries struct {
	// Waits is why it does not go on now, such as a used up quota or a failed step; empty if it does.
	Waits string `json:"waits,omitempty"`
	// Tries counts how often its next step has failed, and TryAt is when it is tried again; nil if it has not failed.
	Tries int `json:"tries,omitempty"`
	// When the failed step is tried again.
	TryAt *time.Time `json:"try_at,omitempty"`
}

// OpenSteps is an unfinished backfill or bulk action, and when its failed step is tried again; zero if none failed.
type OpenSteps struct {
	ID    int64
	TryAt time.Time
}

// WarningCodes are the codes of warnings that Job.Acknowledge can leave out. Other warnings mean that a job does not
// work, for example because it is outside the bounds of its app, and are always shown.
var WarningCodes = append([]string{
	input.CodeAuthPlaintext, input.CodeBodyMethod, input.CodeExecutorTimeout, input.CodeLambdaRegion, input.CodePayloadUnused,
}, schedule.WarningCodes...)

// Warn returns warnings about what is allowed but probably a mistake, without those that the job acknowledges;
// calendars are those of its app. Schedules are checked from UpdatedAt on.
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

// WarnOfCallback warns that all attempts of a job fail because no node knows the URL for callbacks.
func (j Job) WarnOfCallback() []input.Problem {
	if j.Target.Callback() == nil {
		return nil
	}
	return []input.Problem{{Path: "/target/" + string(j.Target.Kind()) + "/callback", Code: input.CodeCallbackURL,
		Message: "the node does not " +
			"know the URL of this API, so it can tell no target where to call back; start the nodes with --callback-url (CARILLON_CALLBACK_URL)"}}
}

// WarnOfRegion warns of a function with an ARN in another region than the node's: calls cross regions, or the ARN was
// copied from another installation. It does not warn if the job names the region in its own field, or if node is empty.
func (j Job) WarnOfRegion(node string) []input.Problem {
	l := j.Target.Lambda
	if l == nil || node == "" || l.Region != "" || l.FunctionRegion() == "" || l.FunctionRegion() == node {
		return nil
	}
	return j.unanswered([]input.Problem{{Path: "/target/lambda/function", Code: input.CodeLambdaRegion, Message: "the function is in " +
		l.FunctionRegion() + ", and the nodes are in " + node + "; if that is meant, name the region in region, too"}})
}

// WarnOfNodes is WarnOfNodes for the job, whatever it acknowledges.
func (j Job) WarnOfNodes(fleet func() ([]Node, *target.Bounds)) []input.Problem {
	return WarnOfNodes(j.App, j.NodeLabels, fleet, func(u *target.Unreachable) {
		u.Target("/target", j.Target)
		for event, follow := range j.EachFollow() {
			if to := follow.Target(); to != nil {
				u.Target("/"+string(event), *to)
			}
		}
	})
}

// CheckBounds returns, as Problems with JSON pointers in the job or nil, where the target of j and the destinations of
// what follows are outside the bounds of its app.
func (j Job) CheckBounds(bounds *target.Bounds) error {
	var problems input.Problems
	problems.AddError("/target", bounds.CheckTarget(j.App, j.Target))
	for event, follow := range j.EachFollow() {
		if to := follow.Target(); to != nil {
			problems.AddError("/"+string(event), bounds.CheckTarget(j.App, *to))
		}
	}
	return problems.Err()
}
