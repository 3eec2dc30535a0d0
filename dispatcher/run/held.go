package run

import "time"

// HeldRun is a run that a node holds and is to execute.
type HeldRun struct {
	Key
	JobID    int64
	Revision int64 // the job's when the run was claimed, requested, adopted or retried
	Token    Token
	Attempt  int
	// Failures are the attempts that count against the job's Retry. RetryUntil is when the run fails
	// for good; zero before the first failure.
	Failures   int
	RetryUntil time.Time
	ClaimedAt  time.Time // when the node got it
	// Live tells that the run was a row of the live runs when the node got it, and not a fire of a claim.
	Live bool
	// HasInput tells that RunInputs has an input of the run.
	HasInput bool
	// Accepted is set if the node is only to record the end of the attempt; see AcceptedAttempt.
	Accepted *AcceptedAttempt
}
