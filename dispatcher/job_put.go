package dispatcher

import (
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
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
