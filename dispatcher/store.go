package dispatcher

import (
	"context"
	"encoding/json"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Locks stop nodes from doing the same work at the same time or one after the other. They only save
// work: every write under a lock is a compare-and-swap or presents the lock's fence.
type Locks interface {
	// Lock takes those of the named locks that are free, in one statement, and returns them.
	// It does not wait.
	Lock(ctx context.Context, request LockRequest) ([]Lock, error)
	// Unlock gives locks back. Locks that were lost in the meantime stay with their new holders.
	Unlock(ctx context.Context, locks []Lock) error
}

// LockRequest asks for locks. By the database's clock a lock is free again when AtMost has passed or
// when it is given back, but not before AtLeast has passed: within that window, nodes whose loops
// run at different times do not repeat each other's work. All nodes must ask for a lock with the
// same AtMost.
type LockRequest struct {
	Node            run.NodeID
	Names           []string
	AtMost, AtLeast time.Duration
	Now             time.Time
}

// Lock is a lock that was taken. Fence counts its holders; only the latest fence allows a write.
type Lock struct {
	Name  string
	Node  run.NodeID
	Fence int64
}

// The names of locks.
const (
	LockFleet      = "fleet"      // marking nodes dead
	LockHistory    = "history"    // removing expired history
	LockStates     = "states"     // rolling up job states
	LockZones      = "zones"      // rescheduling after a change of the time zone database
	LockSwitches   = "switches"   // letting triggers follow their app's switch and their labels
	LockRollback   = "rollback"   // skipping fires after a rollback
	LockUpcoming   = "upcoming"   // counting upcoming fires
	LockCensus     = "census"     // counting what there is
	LockEndpoints  = "endpoints"  // removing expired endpoints of groups
	LockAlerts     = "alerts"     // looking at conditions of alerts that time decides about
	LockObjectives = "objectives" // counting fires of jobs with an objective
	LockStatistics = "statistics" // counting the runs of each day
)

// LockApp is the name of the lock of an app.
func LockApp(app string) string { return "app/" + app }

// Groups are the endpoint groups of apps and the endpoints that they have now. Writes of definitions are as those of
// Definitions; a change of what requests need, and an endpoint that comes, changes or goes, notifies all nodes. A heartbeat
// of an endpoint that is there already does not.
type Groups interface {
	// PutGroup creates or replaces a group. It returns it as stored, without the values of its secrets, and whether it was
	// created. ErrNotFound: the app does not exist. Problems: the definition is wrong, or its secrets cannot be stored.
	PutGroup(ctx context.Context, group target.EndpointGroup, change input.Change) (stored target.EndpointGroup, created bool, err error)
	// Group returns ErrNotFound if there is none of that name.
	Group(ctx context.Context, app, name string) (target.EndpointGroup, error)
	// Groups lists by name.
	Groups(ctx context.Context, app string, page input.Page) ([]target.EndpointGroup, error)
	// DeleteGroup returns an error that is ErrInUse and names the user, while a job's target is the group. Its endpoints go
	// with it.
	DeleteGroup(ctx context.Context, app, name string, change input.Change) error

	// Endpoints lists the endpoints that a group has at now, by id. ErrNotFound: there is no such group.
	Endpoints(ctx context.Context, app, group string, now time.Time, page input.Page) ([]target.Endpoint, error)
	// RegisterEndpoint adds an endpoint to a group, or renews it, for Registration.ExpireAfter from the change on. It returns the
	// endpoint, and whether it was not there. ErrNotFound: there is no such group. ErrConflict: the group takes no
	// registrations, or declares an endpoint of that id. Problems: the endpoint is not one that the group takes.
	RegisterEndpoint(ctx context.Context, app, group string, endpoint target.Endpoint, change input.Change) (target.Endpoint, bool, error)
	// DeregisterEndpoint removes an endpoint that registered itself; ErrNotFound if there is none.
	DeregisterEndpoint(ctx context.Context, app, group, id string, change input.Change) error
	// DrainEndpoint sets or lifts an operator's drain of an endpoint; it stays while the endpoint is there. A registration
	// does not lift it.
	DrainEndpoint(ctx context.Context, app, group, id string, draining bool, change input.Change) (target.Endpoint, error)
}

// Routes is what nodes read of groups.
type Routes interface {
	// GroupVersion returns a group with the values of its secrets and the endpoints that it has at now. ErrNotFound: there
	// is no such group.
	GroupVersion(ctx context.Context, app, name string, now time.Time) (target.GroupVersion, error)
	// ExpireEndpoints removes endpoints that did not register again in time, at most limit, and returns how many.
	ExpireEndpoints(ctx context.Context, limit int, now time.Time) (int, error)
}

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
