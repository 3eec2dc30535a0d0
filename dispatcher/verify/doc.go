// Package verify compares the ledger with the schedules that were in force.
//
// Explain gives the outcome of one scheduled time of a trigger, and the reason. Ledger does the same for a whole app
// in bulk: every scheduled time has a run, lies in a misfire decision, or is still open. Any other time is a
// discrepancy, and so is a run at a time that no schedule has.
//
// Ledger also reports leaks: slots, waits for hosts and shards of runs that have ended. Each of them keeps later runs
// of its job from going on.
//
// Both read the history of definitions before the ledger. A fire that a node claims in between is
// then found in the ledger, or counts as open; it never looks lost.
package verify

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// Reader is the part of a store that this package reads.
type Reader interface {
	dispatcher.Revisions
	// Run returns ErrNotFound if the run does not exist.
	Run(ctx context.Context, id string) (run.Run, error)
	RunsAt(ctx context.Context, keys []run.Key) ([]run.Run, error)
	// Misfires lists misfire decisions, latest first; the cursor is Misfire.Cursor of the last item.
	Misfires(ctx context.Context, query dispatcher.RunQuery) ([]dispatcher.Misfire, error)
	// Leaks lists leaks of runs that ended before an instant.
	Leaks(ctx context.Context, app string, before time.Time, limit int) ([]dispatcher.Leak, error)
	// Backfilled counts the runs of backfills of a job between two instants, by trigger.
	Backfilled(ctx context.Context, job int64, from, to time.Time) (map[int64]int, error)
}
