package access

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// ExportedRun is a run that waits: it is queued, or retrying.
type ExportedRun struct {
	Job string `json:"job"`
	// Trigger is empty for a manual run.
	Trigger     string    `json:"trigger,omitempty"`
	Kind        run.Kind  `json:"kind"`
	ScheduledAt time.Time `json:"scheduled_at"`
	State       run.State `json:"state"`
	// Attempt is the number of the latest attempt, from 0 to MostRunAttempts; Failures are at most as many.
	Attempt       int        `json:"attempt"`
	Failures      int        `json:"failures,omitempty"`
	NextAttemptAt *time.Time `json:"next_attempt_at,omitempty"`
	RetryUntil    *time.Time `json:"retry_until,omitempty"`
	// Run is the id of a run that follows another one or delivers the notification of an alert; empty for other runs. It is
	// the one that Input determines; see Proven.
	Run string `json:"run,omitempty"`
	// Input is what the run was given, nil if it was given nothing.
	Input *run.Input `json:"input,omitempty"`
}

// MostRunAttempts bounds the attempts of a run that moves: no run has as many, and the numbers of those to come fit everywhere.
const MostRunAttempts = 1_000_000

// Key returns the key of a waiting run of job.
func (r ExportedRun) Key(job dispatcher.Job) run.Key {
	key := run.Key{TriggerID: job.Key(), ScheduledAt: r.ScheduledAt, Kind: r.Kind}
	switch {
	case r.Kind.HasOwnID():
		key, _ = run.ParseKey(r.Run) // as Export.Validate has checked
	case r.Kind != run.KindManual:
		key.TriggerID = job.TriggerKey(r.Trigger)
	}
	return key
}

// Proven tells whether r is a run of the job that it names, of those that Export.Runnable returns. The id of a run with an id
// of its own is a hash that has the key of its job, or of the alert of its job, in it: it is proven if what the run was given
// leads to it, with the salt of the app. Any other id may be that of a run of another app. The ids of all other runs follow from the
// names of the job.
func (r ExportedRun) Proven(jobs map[string]dispatcher.Job, salt run.Salt) bool {
	if !r.Kind.HasOwnID() {
		return true
	}
	key, err := run.ParseKey(r.Run)
	if err != nil || r.Input == nil || r.Input.Cause == nil {
		return false
	}
	var proven run.Key
	if r.Kind == run.KindAlert {
		proven = r.toldAs(jobs, salt)
	} else {
		proven = r.followedAs(jobs[r.Job].Key(), salt)
	}
	return proven != run.Key{} && proven == key && key.ScheduledAt.Equal(r.ScheduledAt)
}

// followedAs returns the key of a run of a job that follows what the input names; zero: it names nothing.
func (r ExportedRun) followedAs(job int64, salt run.Salt) run.Key {
	event, parent := run.FollowEvent(r.Input.Cause.On), r.Input.Cause.Run
	if event == run.OnMisfire {
		parent = r.Input.Missed
	}
	of, err := run.ParseKey(parent)
	if err != nil || !slices.Contains(run.FollowEvents, event) {
		return run.Key{}
	}
	if event == run.OnMisfire {
		of.Kind = "" // as missed fires have none
	}
	return dispatcher.FollowerKey(salt, of, event, job, r.Kind)
}

// toldAs returns the key of a run that delivers the notification in its payload; zero: it has none.
func (r ExportedRun) toldAs(jobs map[string]dispatcher.Job, salt run.Salt) run.Key {
	deliveries := jobs[r.Job]
	name, isAlert := strings.CutSuffix(deliveries.Name, dispatcher.AlertSuffix)
	var told target.AlertNotification
	if !isAlert || json.Unmarshal(r.Input.Payload, &told) != nil {
		return run.Key{}
	}
	alert, about := dispatcher.AlertID(deliveries.App, name), run.JobID(deliveries.App, told.Job)
	if job, there := jobs[told.Job]; there { // otherwise it was deleted, or renamed since, from the name that it was created with
		about = job.Key()
	}
	if told.Transition == target.AlertTest {
		about, told.Condition = 0, ""
	}
	return run.Key{TriggerID: dispatcher.AlertStateID(salt, alert, about, told.Condition), ScheduledAt: r.ScheduledAt.UTC(),
		Kind: run.KindAlert}
}

// check adds what is wrong with a waiting run of the jobs and deliveries of an export, whose app has a salt.
func (r ExportedRun) check(problems *input.Problems, at string, jobs map[string]dispatcher.Job, salt run.Salt) {
	job, known := jobs[r.Job]
	if !known || r.State != run.Queued && r.State != run.Retrying {
		problems.Add(at, input.CodeEnum, "run of job %s in state %s is not a queued or retrying run of a job of the export",
			input.Echo(r.Job), input.Echo(string(r.State)))
		return
	}
	if r.Kind.OfTrigger() {
		if _, there := job.Triggers[r.Trigger]; !there {
			problems.Add(at+"/trigger", input.CodeEnum, "trigger %s is none of job %s; take the file as carillon app export wrote it",
				input.Echo(r.Trigger), input.Echo(r.Job))
		}
	} else if !r.Kind.HasOwnID() && r.Kind != run.KindManual {
		problems.Add(at+"/kind", input.CodeEnum, "kind %s is not one of a run that moves with its app; take the file as carillon app export "+
			"wrote it", input.Echo(string(r.Kind)))
		return
	}
	input.CheckRange(problems, at+"/attempt", r.Attempt, 0, MostRunAttempts)
	input.CheckRange(problems, at+"/failures", r.Failures, 0, max(r.Attempt, 0))
	checkMoved(problems, at+"/scheduled_at", &r.ScheduledAt)
	checkMoved(problems, at+"/next_attempt_at", r.NextAttemptAt)
	checkMoved(problems, at+"/retry_until", r.RetryUntil)
	if r.Input != nil {
		problems.AddError(at+"/input", run.CheckPayload(r.Input.Payload))
	}
	if !r.Proven(jobs, salt) {
		problems.Add(at+"/run", input.CodeEnum, "run %s does not follow from the input as a run of kind %s of job %s at %s, so it may be one "+
			"of another app; take the file as carillon app export wrote it", input.Echo(r.Run), r.Kind, input.Echo(r.Job),
			input.FormatInstant(r.ScheduledAt))
	}
}
