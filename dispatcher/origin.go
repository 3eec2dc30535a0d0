package dispatcher

import (
	"cmp"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// A job and a trigger keep for life what was derived from the name that they were created with, their origin: the keys of
// their rows, event ids, what H and jitter hash, and what secrets are bound to. So a rename changes none of them. These
// methods are the only way from a stored job to what is derived; JobID, TriggerID, Identity and EventID take origins.

// CreatedAs returns the job's origin.
func (j Job) CreatedAs() string { return cmp.Or(j.Origin, j.Name) }

// Key returns the key of the job's row.
func (j Job) Key() int64 { return run.JobID(j.App, j.CreatedAs()) }

// TriggerKey returns the key of the row of one of the job's triggers, or of one that it would get.
func (j Job) TriggerKey(name string) int64 {
	return run.TriggerID(j.App, j.CreatedAs(), j.TriggerOrigin(name))
}

// Identity returns what H in the expression of one of the job's triggers and its jitter hash.
func (j Job) Identity(name string) string {
	return Identity(j.App, j.CreatedAs(), j.TriggerOrigin(name))
}

// TriggerOrigin is the name by which the id of a trigger is computed: its first one.
func (j Job) TriggerOrigin(name string) string { return cmp.Or(j.Triggers[name].Origin, name) }

// OriginOf is the origin of what is called name now, as Origin of a Job or Trigger holds it.
func OriginOf(origin, name string) string {
	if origin == name {
		return ""
	}
	return origin
}

// TriggerKey is Job.TriggerKey of a job without its triggers.
func (v JobVersion) TriggerKey(name string) int64 {
	return run.TriggerID(v.App, v.CreatedAs(), v.triggerOrigin(name))
}

// Identity is Job.Identity of a job without its triggers.
func (v JobVersion) Identity(name string) string {
	return Identity(v.App, v.CreatedAs(), v.triggerOrigin(name))
}

// EventID returns the webhook-id of a fire of one of the job's triggers; see Salt.EventID. installation is that of the store. A
// manual run has no trigger.
func (v JobVersion) EventID(installation, trigger string, at time.Time, kind run.Kind) string {
	from := run.Origin{Installation: cmp.Or(v.Installation, installation), App: v.App, Job: v.CreatedAs(), Trigger: v.triggerOrigin(trigger)}
	return v.Salt.EventID(from, at, kind)
}

func (v JobVersion) triggerOrigin(name string) string { return cmp.Or(v.TriggerOrigins[name], name) }

// AlertID returns the key of an alert; see AppID.
func AlertID(app, alert string) int64 { return run.HashID("alert", app, alert) }

// AlertStateID returns the key of a condition of an alert for a job, by the key of the job and the salt of the app. Notifications
// have it in place of a trigger.
func AlertStateID(salt run.Salt, alert, job int64, condition target.AlertCondition) int64 {
	return salt.HashID("alert-state", strconv.FormatInt(alert, 10), strconv.FormatInt(job, 10), string(condition))
}

// AlertSuffix ends the names of jobs that deliver notifications. No user can choose such a name.
const AlertSuffix = ".alert"
