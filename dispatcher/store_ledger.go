package dispatcher

import (
	"context"
	"encoding/json"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// RunQuery selects runs, latest scheduled first. Empty fields select all.
type RunQuery struct {
	App, Job, Trigger string
	State             run.State
	// Parent selects the shards of a run, the highest index first. Without it no shard is selected.
	Parent string
	// From and To bound the scheduled time, both inclusive; zero: unbounded.
	From, To time.Time
	Page     input.Page // the cursor is a run's id
}

// Ledger is the history, and requests about single runs.
type Ledger interface {
	// Runs returns ErrNotFound if the app, or the job or trigger of a query that names one,
	// never existed. Deleted ones keep their runs.
	Runs(ctx context.Context, query RunQuery) ([]run.Run, error)
	// Run returns one run with its attempts.
	Run(ctx context.Context, id string) (run.Run, error)
	// RunsAt returns the runs of some keys, latest first, as Runs does. Those that do not exist are left out.
	RunsAt(ctx context.Context, keys []run.Key) ([]run.Run, error)
	// Slots lists the slots of a job that are taken, in the order of their runs.
	Slots(ctx context.Context, app, job string) ([]Slot, error)
	// Leaks lists what is held for runs of an app although they have ended, or keeps runs from going on, and was so before an
	// instant: at most limit leaks, in the order of their jobs. What is younger may be about to be freed.
	Leaks(ctx context.Context, app string, before time.Time, limit int) ([]Leak, error)
	// MendLeaks lets runs of any app go on that nothing else would let go: those that wait for a host that no probe asks for are attempted
	// again, and those that wait for a callback without a deadline get the latest one that there may be. It returns the kind and the run
	// of at most limit leaks that it mended.
	MendLeaks(ctx context.Context, limit int, now time.Time) ([]Leak, error)
	// Misfires lists the misfire decisions of an app, latest first, optionally of one job and trigger.
	// The cursor is Misfire.Cursor of the last item.
	Misfires(ctx context.Context, query RunQuery) ([]Misfire, error)

	// RequestRun queues a manual run of a job, to be adopted by any node. Its scheduled
	// time is now. A payload takes the place of the job's; nil: the run has that of the job. Problems: the payload is
	// wrong, or the target of the job does not send it.
	RequestRun(ctx context.Context, app, job string, payload json.RawMessage, change input.Change) (run.Run, error)
	// RetryRun queues a finished or retrying run for its next attempt, with all the attempts that
	// its job allows. ErrConflict: the run is queued or in progress.
	RetryRun(ctx context.Context, id string, change input.Change) (run.Run, error)
	// CancelRun ends a live run as cancelled; the result of a request in flight becomes a
	// late result. ErrConflict: it is finished.
	CancelRun(ctx context.Context, id string, change input.Change) (run.Run, error)
	// ReleaseRun frees the slots of a run that has ended, whatever its node does: if a request of it is still in flight,
	// another run of the job may overlap with that. ErrConflict: it has not ended, or has no slot.
	ReleaseRun(ctx context.Context, id string, change input.Change) (run.Run, error)
}

// Purged is what one call of Purge removed.
type Purged struct {
	// Partitions are tables of one day that were dropped, on PostgreSQL.
	Partitions int
	// Runs, with their attempts, and Misfires were deleted one by one.
	Runs, Misfires int
	// AuditEntries are entries of the audit log.
	AuditEntries int
	// Jobs are jobs whose DeleteAfterCompletion has passed.
	Jobs int
	// More tells that there is more to remove now.
	More bool
	// Busy tells that another node is purging, so nothing was done.
	Busy bool
}

// Retention removes history that has expired.
type Retention interface {
	// Purge removes what is older than the retention of its app, by whole UTC days: runs by
	// their scheduled time and end, misfires by their last fire and decision. Live runs stay. On
	// PostgreSQL a day is dropped as a partition once it and the day after it are older than the longest retention
	// of all apps; what ended later than that is kept. A deleted app counts while it has history. Purge also creates the
	// partitions of the coming days. A call is bounded, runs under LockHistory, and never waits: locked rows are
	// left for a later call. It takes several steps, and a step that fails stops no other: the error tells of all
	// that failed.
	//
	// It also deletes jobs whose DeleteAfterCompletion has passed. Beyond the longest retention it
	// removes deleted jobs and removed triggers that no history names, and the revisions of deleted definitions. The audit
	// log has a retention of its own, which no app changes.
	Purge(ctx context.Context, node run.NodeID, now time.Time) (Purged, error)
}
