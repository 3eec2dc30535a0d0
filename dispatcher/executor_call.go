package dispatcher

import "github.com/carillon-dev/carillon/dispatcher/run"

// ExecutorCall is a question about an attempt to the executor of XXL-JOB that has it.
type ExecutorCall struct {
	App string
	// Bounds are those of the app, with defaults.
	Bounds *Bounds
	// AWSExternalID is that of the app.
	AWSExternalID string
	// Group is the group of the executor, with the values of its secrets.
	Group *GroupVersion
	// Endpoint is the executor, one of Group.Live.
	Endpoint Endpoint
	// Run is how the executor knows the attempt.
	Run run.ExecutorRun
}
