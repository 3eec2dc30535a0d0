package dispatcher

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// JobRename is the body of a request to rename a job, triggers of it, or both at once. Everything that was derived from
// the old names stays: event ids, the fire times of H and of jitter, secrets, pauses, history and live runs.
type JobRename struct {
	// Name is the new name of the job; empty keeps the name.
	Name string `json:"name,omitempty" schema:"Name"`
	// Triggers holds new names of triggers by their current ones. Two triggers can swap their names.
	Triggers map[string]string `json:"triggers,omitempty" schema:"Name,max=100"`
}

// Validate returns everything wrong with r that does not depend on the job, as Problems, or nil.
func (r JobRename) Validate() error {
	var problems input.Problems
	if r.Name == "" && len(r.Triggers) == 0 {
		problems.Add("", input.CodeRequired, "nothing is to be renamed; give the new name of the job in name, or new names of its triggers "+
			"by their current ones in triggers")
	}
	if r.Name != "" {
		input.CheckName(&problems, "/name", r.Name)
	}
	if len(r.Triggers) > MaxTriggers {
		problems.Add("/triggers", input.CodeTooMany, "%d triggers are to be renamed; a job has at most %d", len(r.Triggers), MaxTriggers)
		return problems
	}
	for _, old := range input.SortedKeys(r.Triggers) {
		input.CheckName(&problems, input.Pointer("triggers", old), r.Triggers[old])
	}
	return problems.Err()
}

// Apply returns job after r at now: with its new names, its origins and the next revision. The error is Problems: r
// changes nothing, names triggers that job does not have, or gives a trigger the name of another one.
func (r JobRename) Apply(job Job, now time.Time) (Job, error) {
	if err := r.check(job); err != nil {
		return Job{}, err
	}
	renamed := job
	renamed.Revision, renamed.UpdatedAt = job.Revision+1, now
	renamed.Name = cmp.Or(r.Name, job.Name)
	renamed.Origin = OriginOf(job.CreatedAs(), renamed.Name)
	renamed.Triggers = make(map[string]Trigger, len(job.Triggers))
	for name, t := range job.Triggers {
		to := r.trigger(name)
		t.Origin = OriginOf(job.TriggerOrigin(name), to)
		renamed.Triggers[to] = t
	}
	return renamed, nil
}

// NameHolder is a job with the name that another job is to get.
type NameHolder struct {
	DeletedAt, KeptUntil *time.Time // nil if it is not deleted
}

// Of returns job after the rename at now; holder is the job that has its new name, or nil. The error is Problems:
// those of Apply, or that the name is taken.
func (r JobRename) Of(job Job, holder *NameHolder, now time.Time) (Job, error) {
	var problems input.Problems
	renamed, err := r.Apply(job, now)
	problems.AddError("", err)
	switch shown := input.Echo(job.App + "/" + r.Name); {
	case holder == nil:
	case holder.DeletedAt == nil:
		problems.Add("/name", input.CodeNameTaken, "job %s exists; choose another name, or rename or delete that job first", shown)
	default:
		problems.Add("/name", input.CodeNameTaken, "job %s was deleted at %s, and its history is kept under this name until about %s, "+
			"by the longest retention of all apps; choose another name", shown, holder.DeletedAt.Format(time.RFC3339),
			holder.KeptUntil.Format(time.DateOnly))
	}
	return renamed, problems.Err()
}

// check returns, as Problems or nil, why r cannot be applied to job.
func (r JobRename) check(job Job) error {
	if err := r.Validate(); err != nil {
		return err
	}
	var problems input.Problems
	after := map[string][]string{} // the triggers by their names afterwards
	for _, name := range input.SortedKeys(job.Triggers) {
		after[r.trigger(name)] = append(after[r.trigger(name)], name)
	}
	changes := r.Name != "" && r.Name != job.Name
	for _, old := range input.SortedKeys(r.Triggers) {
		at, name := input.Pointer("triggers", old), r.Triggers[old]
		if _, has := job.Triggers[old]; !has {
			known := input.SortedKeys(job.Triggers)
			problems.Add(at, input.CodeEnum, "job %s has no trigger %s%s; its triggers: %s", input.Echo(job.App+"/"+job.Name), input.Echo(old),
				input.DidYouMean(old, known), input.Listed(known))
			continue
		}
		changes = changes || name != old
		if other := slices.IndexFunc(after[name], func(one string) bool { return one != old }); other >= 0 {
			problems.Add(at, input.CodeNameTaken, "trigger %s cannot be named %s, because trigger %s would have that name, too; give it another one",
				input.Echo(old), input.Echo(name), input.Echo(after[name][other]))
		}
	}
	if !changes && len(problems) == 0 {
		problems.Add("", input.CodeRequired, "every name that is given is the current one; give a new one")
	}
	return problems.Err()
}

// trigger returns the name of a trigger after the rename.
func (r JobRename) trigger(name string) string {
	if renamed, is := r.Triggers[name]; is {
		return renamed
	}
	return name
}

// RenamedFrom has the former names of declared triggers by their present ones. Configuration uses it because it
// declares a state, and so cannot ask for a JobRename, which is done once.
type RenamedFrom map[string]string

// Check returns, as Problems or nil, renames that are wrong whatever the job is now; triggers are the declared ones.
// Problems point to renamed_from of the declared trigger.
func (r RenamedFrom) Check(triggers map[string]Trigger) error {
	var problems input.Problems
	by := map[string]string{} // present names by former ones
	for _, name := range input.SortedKeys(r) {
		old, at := r[name], input.Pointer("triggers", name, "renamed_from")
		_, declared := triggers[old]
		_, moves := r[old]
		before := len(problems)
		input.CheckName(&problems, at, old)
		switch other, taken := by[old]; {
		case len(problems) > before:
		case old == name:
			problems.Add(at, input.CodeNameTaken, "%s is the name of the trigger itself; give the one that it had before, or leave it out",
				input.Echo(old))
		case taken:
			problems.Add(at, input.CodeNameTaken, "trigger %s is renamed to %s already, and can get one name only", input.Echo(old),
				input.Echo(other))
		case declared && !moves:
			problems.Add(at, input.CodeNameTaken,
				"trigger %s is declared, too; remove its block, or leave out renamed_from if this is another trigger",
				input.Echo(old))
		}
		by[old] = name
	}
	return problems.Err()
}

// Pending returns the new names of triggers that are still to be renamed, by their names in job. done are the renames
// of the latest declaration of job, which have been applied. The error is Problems: job has no trigger with the
// former name, or another one with the present name.
func (r RenamedFrom) Pending(done RenamedFrom, job Job) (map[string]string, error) {
	moves := map[string]bool{}
	for name, old := range r {
		_, here := job.Triggers[old]
		moves[old] = here && done[name] != old
	}
	var problems input.Problems
	pending := map[string]string{}
	for _, name := range input.SortedKeys(r) {
		old, at := r[name], input.Pointer("triggers", name, "renamed_from")
		_, exists := job.Triggers[name]
		_, here := job.Triggers[old]
		switch {
		case done[name] == old, exists && !here: // it has been renamed
		case !here:
			problems.Add(at, input.CodeNotFound, "the job has no trigger %s%s; leave renamed_from out if %s is a new trigger",
				input.Echo(old), input.DidYouMean(old, input.SortedKeys(job.Triggers)), input.Echo(name))
		case exists && !moves[name]:
			problems.Add(at, input.CodeNameTaken,
				"the job has a trigger %s already, so %s cannot get its name; leave renamed_from out, and %s is removed",
				input.Echo(name), input.Echo(old), input.Echo(old))
		default:
			pending[old] = name
		}
	}
	return pending, problems.Err()
}

// The origin of a job or trigger is the name that it was created with. The keys of their rows, event ids, the input
// of H and of jitter, and the binding of secrets derive from it, so a rename changes none of them. Code that has a
// stored job uses only these methods; JobID, TriggerID, Identity and EventID take origins.

// CreatedAs returns the job's origin.
func (j Job) CreatedAs() string { return cmp.Or(j.Origin, j.Name) }

// Key returns the key of the job's row.
func (j Job) Key() int64 { return run.JobID(j.App, j.CreatedAs()) }

// TriggerKey returns the key of the row of one of the job's triggers, or of a new one.
func (j Job) TriggerKey(name string) int64 {
	return run.TriggerID(j.App, j.CreatedAs(), j.TriggerOrigin(name))
}

// Identity returns the name of one of the job's triggers that H in its expression and its jitter hash.
func (j Job) Identity(name string) string {
	return Identity(j.App, j.CreatedAs(), j.TriggerOrigin(name))
}

// TriggerOrigin returns the name that the id of a trigger is computed from: its first one.
func (j Job) TriggerOrigin(name string) string { return cmp.Or(j.Triggers[name].Origin, name) }

// OriginOf returns the Origin field of a Job or Trigger with that origin and current name.
func OriginOf(origin, name string) string {
	if origin == name {
		return ""
	}
	return origin
}

// TriggerKey is Job.TriggerKey for a job without its triggers.
func (v JobVersion) TriggerKey(name string) int64 {
	return run.TriggerID(v.App, v.CreatedAs(), v.triggerOrigin(name))
}

// Identity is Job.Identity for a job without its triggers.
func (v JobVersion) Identity(name string) string {
	return Identity(v.App, v.CreatedAs(), v.triggerOrigin(name))
}

// EventID returns the webhook-id of a fire of one of the job's triggers; see Salt.EventID. installation is the
// store's. A manual run has no trigger.
func (v JobVersion) EventID(installation, trigger string, at time.Time, kind run.Kind) string {
	from := run.Origin{Installation: cmp.Or(v.Installation, installation), App: v.App, Job: v.CreatedAs(), Trigger: v.triggerOrigin(trigger)}
	return v.Salt.EventID(from, at, kind)
}

func (v JobVersion) triggerOrigin(name string) string { return cmp.Or(v.TriggerOrigins[name], name) }

// AlertID returns the key of an alert; see AppID.
func AlertID(app, alert string) int64 { return run.HashID("alert", app, alert) }

// AlertStateID returns the key of a condition of an alert for a job, from the key of the job and the salt of the app.
// Notifications have it in place of a trigger.
func AlertStateID(salt run.Salt, alert, job int64, condition target.AlertCondition) int64 {
	return salt.HashID("alert-state", strconv.FormatInt(alert, 10), strconv.FormatInt(job, 10), string(condition))
}

// AlertSuffix ends the names of jobs that deliver notifications. No user can choose such a name.
const AlertSuffix = ".alert"
