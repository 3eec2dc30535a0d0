package dispatcher

import (
	"encoding/json"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// RunRequest is the body of a request to run a job by hand, which may be left out.
type RunRequest struct {
	// Payload takes the place of the job's payload; nil: the run has that of the job.
	Payload json.RawMessage `json:"payload,omitempty"`
}

// CheckPayloadOf returns why a run of j could not be given a payload, as Problems, or nil: the payload is wrong, a template
// cannot be filled in with it, or the target sends none.
func (j Job) CheckPayloadOf(payload json.RawMessage) error {
	if payload == nil {
		return nil
	}
	if err := run.CheckPayload(payload); err != nil {
		return err
	}
	var problems input.Problems
	problems.AddError("/payload", j.Target.TryTemplates(j.App, j.Name, payload))
	var warnings input.Problems
	j.Target.Warn(payload, &warnings)
	for _, one := range warnings {
		if one.Path == "/payload" {
			problems = append(problems, one)
		}
	}
	return problems.Err()
}
