package dispatcher

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// FollowQuery selects pending ends.
type FollowQuery struct {
	// Limit is how many ends one call takes. Ends that were set aside and are tried again may come in addition, as many at most.
	Limit int
	// From is the time before which all ends are left alone; zero: they have no lower bound. Of the apps in After, by their ids, all
	// that ended before the time there are left alone. Ends that were set aside have no lower bound.
	From  time.Time
	After map[int64]time.Time
	Now   time.Time // zero: the database's clock
}

// FollowedEnds is what one call of FollowEnds did.
type FollowedEnds struct {
	Ends   int  // ends and misfires that are dealt with
	Queued int  // runs that were queued
	More   bool // there are more
	// Latest is when the latest of Ends and SetAside ended, by the ids of apps. Those that were tried again do not count.
	Latest map[int64]time.Time
	// SetAside are the ends that could not be followed.
	SetAside []SetAside
}

// Follows are what follows a run. The end of a run of a job with a FollowMask leaves a row among the pending ends, in the
// statement that puts the run into the history; so does each decision about missed fires.
type Follows interface {
	// FollowEnds takes the earliest pending ends of a query, and in one transaction removes them and queues what follows them. If there
	// are more than Limit, the apps take turns: of each app it takes as many as of any other that has as many. If
	// it fails for what one of them holds, each has a transaction of its own, and those that fail again are set aside. Ends that
	// another node takes just now are left to it. What follows was declared by the job as it is now.
	FollowEnds(ctx context.Context, query FollowQuery) (FollowedEnds, error)
}

// RunRef is a run that followed another one.
type RunRef struct {
	Run string `json:"run"`
	App string `json:"app"`
	// Job is the name of the job; a delivery to a target has that of the job that it belongs to, a dot and On.
	Job   string      `json:"job"`
	On    FollowEvent `json:"on"`
	State RunState    `json:"state"`
}

// DeadLetterQuery selects runs that ended as failed, timed_out or lost, latest scheduled first. Empty fields select all.
type DeadLetterQuery struct {
	App      string // required
	Job      string // also that of a delivery, such as NAME.on_failure
	Class    Class
	State    RunState  // failed, timed_out or lost
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
	DeadLetters(ctx context.Context, query DeadLetterQuery) ([]Run, error)
	// CountDeadLetters counts those of a query, whose Page it leaves alone, as far as most.
	CountDeadLetters(ctx context.Context, query DeadLetterQuery, most int) (DeadLetterCount, error)
	// ReplayDeadLetters retries a portion of the runs of a query, as RetryRun does each: at most Page.Limit, from the
	// cursor on, each in a transaction of its own. So a call that is cut off has retried some, and another one goes on.
	ReplayDeadLetters(ctx context.Context, query DeadLetterQuery, change input.Change) (Replayed, error)
}
