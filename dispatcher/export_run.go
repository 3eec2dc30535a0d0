package dispatcher

import (
	"time"
)

// ExportedRun is a run that waits: it is queued, or retrying.
type ExportedRun struct {
	Job string `json:"job"`
	// Trigger is empty for a manual run.
	Trigger       string     `json:"trigger,omitempty"`
	Kind          RunKind    `json:"kind"`
	ScheduledAt   time.Time  `json:"scheduled_at"`
	State         RunState   `json:"state"`
	Attempt       int        `json:"attempt"`
	Failures      int        `json:"failures,omitempty"`
	NextAttemptAt *time.Time `json:"next_attempt_at,omitempty"`
	RetryUntil    *time.Time `json:"retry_until,omitempty"`
	// Run is the id of a run that follows another one or delivers the notification of an alert; empty for other runs.
	Run string `json:"run,omitempty"`
	// Input is what the run was given, nil if it was given nothing.
	Input *RunInput `json:"input,omitempty"`
}

// Key returns the key of a waiting run of job.
func (r ExportedRun) Key(job Job) RunKey {
	key := RunKey{TriggerID: job.Key(), ScheduledAt: r.ScheduledAt, Kind: r.Kind}
	switch {
	case r.Kind.HasOwnID():
		key, _ = ParseRunKey(r.Run) // as Export.Validate has checked
	case r.Kind != KindManual:
		key.TriggerID = job.TriggerKey(r.Trigger)
	}
	return key
}

// check adds what is wrong with a waiting run of the jobs and deliveries of an export.
func (r ExportedRun) check(problems *Problems, at string, jobs map[string]Job) {
	_, known := jobs[r.Job]
	switch {
	case !known || r.State != RunQueued && r.State != RunRetrying:
		problems.Add(at, CodeEnum, "run of job %s in state %s is not a queued or retrying run of a job of the export",
			Echo(r.Job), Echo(string(r.State)))
		return
	case r.Kind.HasOwnID():
		if key, err := ParseRunKey(r.Run); err != nil || key.Kind != r.Kind || key.Shard > 0 || !key.ScheduledAt.Equal(r.ScheduledAt) {
			problems.Add(at+"/run", CodeEnum, "run %s is not of kind %s, or not scheduled at %s; take the file as carillon app export wrote it",
				Echo(r.Run), r.Kind, FormatInstant(r.ScheduledAt))
		}
	case !r.Kind.OfTrigger() && r.Kind != KindManual:
		problems.Add(at+"/kind", CodeEnum, "kind %s is not one of a run that moves with its app; take the file as carillon app export "+
			"wrote it", Echo(string(r.Kind)))
		return
	}
	if r.Input != nil {
		problems.AddError(at+"/input", CheckPayload(r.Input.Payload))
	}
}
