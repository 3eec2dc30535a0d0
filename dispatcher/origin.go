package dispatcher

import (
	"cmp"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

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
