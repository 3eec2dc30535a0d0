package dispatcher

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
)

// NextAttempt is when a run is attempted again.
type NextAttempt struct {
	At time.Time
	// Until is when the run fails for good: no attempt begins later.
	Until time.Time
	// CountsAsFailure tells that the attempt counts against Retry.MaxAttempts.
	CountsAsFailure bool
	// NotAttempted tells that the attempt was deferred before it began, so its number is used again.
	NotAttempted bool
	// StopAtNextFire ends the run if its trigger fires before At, or has fired since.
	StopAtNextFire bool
	// Wait is what the run waits for in place of At; nil: nothing. At Until it stops waiting.
	Wait *HostWait
	// Callback tells that there is no next attempt: the target accepted this one, and says until At how it ended. Of
	// the other fields only At counts. nil: the attempt is over.
	Callback *run.Callback
}

// RetryTimes are times at which something is to be done for runs that are attempted again; zero: there is none.
type RetryTimes struct {
	Least time.Time // when the first of them is or was due, whether a node may adopt it or not
	Next  time.Time // when the next is due
	Waits bool      // whether there is a HostWait
}

// Retries are runs in state retrying. No node holds them; any node adopts those that are due. See
// AdoptQuery.
type Retries interface {
	HostWaits
	// NextRetry returns when the first retries are due: of those from from on, and of those later than after.
	NextRetry(ctx context.Context, from, after time.Time) (RetryTimes, error)
	// GiveUp ends the retrying runs that are past their time, as their latest attempts ended, and returns how
	// many. A run that was never attempted but only deferred is not given up: it stays due for a last attempt.
	GiveUp(ctx context.Context, now time.Time) (int, error)
	// Disable puts the trigger of a run into state error with a reason, and adds an entry to the audit log. It does so
	// if the run ended with the outcome of that record, if the trigger is waiting, and if the job has not been changed
	// since the run was claimed, adopted or retried. A resume or any change of the job lifts it.
	Disable(ctx context.Context, ended Record, reason string, now time.Time) (done bool, err error)
}
