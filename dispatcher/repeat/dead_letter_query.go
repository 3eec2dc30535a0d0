package repeat

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// DeadLetterQuery selects runs that ended as failed, timed_out or lost, latest scheduled first. Empty fields select all.
type DeadLetterQuery struct {
	App      string // required
	Job      string // also that of a delivery, such as NAME.on_failure
	Class    run.Class
	State    run.State // failed, timed_out or lost
	From, To time.Time // bound the scheduled time, both inclusive; zero: unbounded
	// Page's cursor is a run's id.
	Page input.Page
}

// DeadLetterCount is how many dead letters there are.
type DeadLetterCount struct {
	Count int `json:"count"`
	// More tells that there are more than were counted.
	More bool `json:"more"`
}

// Replayed is what one call of ReplayDeadLetters did.
type Replayed struct {
	// Replayed are the runs that were queued again. Skipped were found, and retried or removed by somebody else meanwhile.
	Replayed int `json:"replayed"`
	Skipped  int `json:"skipped"`
	// Next is the cursor for the next call; empty: all had their turn or, with Stopped, none.
	Next string `json:"next,omitempty"`
	// Stopped says why the call ended early, such as a quota that is used up; nil: it did not. The next call goes on at Next.
	Stopped *input.Problem `json:"stopped,omitempty"`
}

// DeadLetters are runs that failed for good. A run that is retried is none until it fails again.
type DeadLetters interface {
	// DeadLetters lists runs as Ledger.Runs does, without their attempts. ErrNotFound: the app or the job never existed.
	DeadLetters(ctx context.Context, query DeadLetterQuery) ([]run.Run, error)
	// CountDeadLetters counts those of a query, whose Page it leaves alone, as far as most.
	CountDeadLetters(ctx context.Context, query DeadLetterQuery, most int) (DeadLetterCount, error)
	// ReplayDeadLetters retries a portion of the runs of a query, as RetryRun does each: at most Page.Limit, from the
	// cursor on, each in a transaction of its own. So a call that is cut off has retried some, and another one goes on.
	ReplayDeadLetters(ctx context.Context, query DeadLetterQuery, change input.Change) (Replayed, error)
}
