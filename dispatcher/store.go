package dispatcher

import (
	"context"
	"encoding/json"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Locks keep nodes from doing the same work at the same time or one after the other. They only save work: every write
// under a lock is a compare-and-swap or presents the lock's fence.
type Locks interface {
	// Lock takes the free ones of the named locks, in one statement, and returns them. It does not wait.
	Lock(ctx context.Context, request LockRequest) ([]Lock, error)
	// Unlock returns locks. Locks that were lost in the meantime stay with their new holders.
	Unlock(ctx context.Context, locks []Lock) error
}

// LockRequest asks for locks. By the database's clock a lock is free again when AtMost has passed or when it is
// returned, but not before AtLeast has passed: so nodes with loops at different times do not repeat each other's
// work. All nodes must ask for a lock with the same AtMost.
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
	LockSwitches   = "switches"   // making triggers follow their app's switch and their labels
	LockRollback   = "rollback"   // skipping fires after a rollback
	LockUpcoming   = "upcoming"   // counting upcoming fires
	LockCensus     = "census"     // counting for Census
	LockEndpoints  = "endpoints"  // removing expired endpoints of groups
	LockAlerts     = "alerts"     // checking alert conditions that depend on time
	LockObjectives = "objectives" // counting fires of jobs with an objective
	LockStatistics = "statistics" // counting the runs of each day
)

// LockApp is the name of the lock of an app.
func LockApp(app string) string { return "app/" + app }

// Groups are the endpoint groups of apps and their current endpoints. Definitions are written as in Definitions.
// Changes that requests depend on, and endpoints that are added, changed or removed, notify all nodes; a heartbeat of
// an existing endpoint does not.
type Groups interface {
	// PutGroup creates or replaces a group. It returns it as stored, without the values of its secrets, and whether it was
	// created. ErrNotFound: the app does not exist. Problems: the definition is wrong, or its secrets cannot be stored.
	PutGroup(ctx context.Context, group target.EndpointGroup, change input.Change) (stored target.EndpointGroup, created bool, err error)
	// Group returns ErrNotFound if the group does not exist.
	Group(ctx context.Context, app, name string) (target.EndpointGroup, error)
	// Groups lists groups by name.
	Groups(ctx context.Context, app string, page input.Page) ([]target.EndpointGroup, error)
	// DeleteGroup removes a group with its endpoints. While it is the target of a job, it returns an ErrInUse that
	// names the user.
	DeleteGroup(ctx context.Context, app, name string, change input.Change) error
	// DeleteGroupWhenUnused deletes the group if no job has it as its target. Otherwise it marks and returns it: the change
	// that removes the last use deletes it, and a PUT clears the mark.
	DeleteGroupWhenUnused(ctx context.Context, app, name string, change input.Change) (marked *target.EndpointGroup, err error)

	// Endpoints lists the endpoints that a group has at now, by id. ErrNotFound: the group does not exist.
	Endpoints(ctx context.Context, app, group string, now time.Time, page input.Page) ([]target.Endpoint, error)
	// RegisterEndpoint adds an endpoint to a group, or renews it, for Registration.ExpireAfter from the change on. It
	// returns the endpoint, and whether it is new. ErrNotFound: the group does not exist. ErrConflict: the group
	// takes no registrations, or declares an endpoint with that id. Problems: the group does not allow the endpoint.
	RegisterEndpoint(ctx context.Context, app, group string, endpoint target.Endpoint, change input.Change) (target.Endpoint, bool, error)
	// DeregisterEndpoint removes an endpoint that registered itself; ErrNotFound if it does not exist.
	DeregisterEndpoint(ctx context.Context, app, group, id string, change input.Change) error
	// DrainEndpoint sets or lifts an operator's drain of an endpoint. It lasts as long as the endpoint; a
	// registration does not lift it.
	DrainEndpoint(ctx context.Context, app, group, id string, draining bool, change input.Change) (target.Endpoint, error)
}

// Routes are the reads of groups by nodes.
type Routes interface {
	// GroupVersion returns a group with the values of its secrets and the endpoints that it has at now. ErrNotFound:
	// the group does not exist.
	GroupVersion(ctx context.Context, app, name string, now time.Time) (target.GroupVersion, error)
	// ExpireEndpoints removes endpoints that did not register again in time, at most limit, and returns how many.
	ExpireEndpoints(ctx context.Context, limit int, now time.Time) (int, error)
}

// FollowQuery selects pending ends.
type FollowQuery struct {
	// Limit is how many ends one call takes. At most as many again may be taken of ends that were set aside and are
	// tried again.
	Limit int
	// From excludes ends before that time; zero: no lower bound. After excludes ends of an app, by its id, before the
	// time there. Neither applies to ends that were set aside.
	From  time.Time
	After map[int64]time.Time
	Now   time.Time // zero: the database's clock
}

// FollowedEnds is the result of one call of FollowEnds.
type FollowedEnds struct {
	Ends   int  // ends and misfires that were handled
	Queued int  // runs that were queued
	More   bool // there are more
	// Latest is when the latest of Ends and SetAside ended, by the id of the app. Retried ones do not count.
	Latest map[int64]time.Time
	// SetAside are the ends that could not be followed.
	SetAside []SetAside
}

// Follows queue the followers of runs. The end of a run of a job with a FollowMask inserts a row into the pending
// ends, in the statement that moves the run into the history; so does each decision about missed fires.
type Follows interface {
	// FollowEnds takes the earliest pending ends of a query, and in one transaction removes them and queues their
	// followers. If there are more than Limit, the apps take turns, so that each gets an equal part. If the content
	// of one end makes the transaction fail, each end gets its own, and those that fail again are set aside. Ends
	// that another node is taking are left to it. The current definition of the job decides what follows.
	FollowEnds(ctx context.Context, query FollowQuery) (FollowedEnds, error)
}

// RunQuery selects runs, latest scheduled first. Empty fields select all.
type RunQuery struct {
	App, Job, Trigger string
	State             run.State
	// Parent selects the shards of a run, the highest index first. Without it no shard is selected.
	Parent string
	// From and To bound the scheduled time, both inclusive; zero means unbounded.
	From, To time.Time
	Page     input.Page // the cursor is a run's id
}

// RunSearch selects runs of several apps. Empty fields select all.
type RunSearch struct {
	Apps []string
	// Job and Trigger are whole names.
	Job, Trigger string
	State        run.State
	Kind         run.Kind
	// Node is the node that holds or held the run.
	Node run.NodeID
	// Class and Error select failed and live runs, unless State is given. Error is a part of the error, in any case.
	Class run.Class
	Error string
	// ID is a webhook-id or the id of a trace; see run.Run.HasID.
	ID string
	// From and To are as in RunQuery.
	From, To time.Time
	// Page also selects by the labels of jobs. Its cursor is the next of SearchRuns.
	Page input.Page
}

// Ledger is the history, and requests about single runs.
type Ledger interface {
	// Runs returns ErrNotFound if the app, or the job or trigger of a query that names one,
	// never existed. Deleted ones keep their runs.
	Runs(ctx context.Context, query RunQuery) ([]run.Run, error)
	// SearchRuns returns runs of several apps, and the cursor of the next page; empty: there is none. It examines a
	// bounded number of runs, so a page may have fewer runs than its limit, even none, although pages follow.
	SearchRuns(ctx context.Context, query RunSearch) (runs []run.Run, next string, err error)
	// Run returns one run with its attempts.
	Run(ctx context.Context, id string) (run.Run, error)
	// RunsAt returns the runs with some keys, latest first, as Runs does. Missing ones are left out.
	RunsAt(ctx context.Context, keys []run.Key) ([]run.Run, error)
	// Slots lists the taken slots of a job, in the order of their runs.
	Slots(ctx context.Context, app, job string) ([]Slot, error)
	// Leaks lists at most limit leaks of an app that existed before an instant, in the order of their jobs. Younger
	// ones may be about to be freed.
	Leaks(ctx context.Context, app string, before time.Time, limit int) ([]Leak, error)
	// MendLeaks releases runs of any app that would otherwise wait permanently: it attempts again those that wait for
	// a host without a probe, and gives those that wait for a callback without a deadline the latest deadline
	// allowed. It returns the kind and the run of at most limit leaks that it mended.
	MendLeaks(ctx context.Context, limit int, now time.Time) ([]Leak, error)
	// Misfires lists the misfire decisions of an app, latest first, optionally of one job and trigger.
	// The cursor is Misfire.Cursor of the last item.
	Misfires(ctx context.Context, query RunQuery) ([]Misfire, error)

	// RequestRun queues a manual run of a job, to be adopted by any node. Its scheduled time is now. A payload
	// replaces the job's; nil keeps it. Problems: the payload is invalid, or the target of the job does not send it.
	RequestRun(ctx context.Context, app, job string, payload json.RawMessage, change input.Change) (run.Run, error)
	// RetryRun queues a finished or retrying run for its next attempt, with all the attempts that
	// its job allows. ErrConflict: the run is queued or in progress.
	RetryRun(ctx context.Context, id string, change input.Change) (run.Run, error)
	// CancelRun ends a live run as cancelled; the result of a request in flight becomes a
	// late result. ErrConflict: it is finished.
	CancelRun(ctx context.Context, id string, change input.Change) (run.Run, error)
	// ReleaseSlot frees the slots of a run of a job, whatever its node does: if its request is still in flight, another run
	// of the job may overlap with it. It returns the run. ErrConflict: it has not ended, and release does not cancel it, or
	// it is not clear which run is meant.
	ReleaseSlot(ctx context.Context, app, job string, release run.SlotRelease, change input.Change) (run.Run, error)
}

// Purged is the result of one call of Purge.
type Purged struct {
	// Partitions counts dropped tables of one day, on PostgreSQL.
	Partitions int
	// Runs, with their attempts, and Misfires count rows that were deleted one by one.
	Runs, Misfires int
	// AuditEntries counts removed entries of the audit log.
	AuditEntries int
	// Jobs counts deleted jobs after their DeleteAfterCompletion.
	Jobs int
	// More is true if there is more to remove now.
	More bool
	// Busy is true if another node is purging, so this call removed nothing.
	Busy bool
}

// Retention removes history that has expired.
type Retention interface {
	// Purge removes history that is older than the retention of its app, by whole UTC days: runs by their scheduled
	// time and end, misfires by their last fire and decision. Live runs stay. On PostgreSQL a day is dropped as a
	// partition once it and the day after it are older than the longest retention of all apps; runs that ended later
	// are kept. A deleted app counts while it has history. Purge also creates the partitions of the coming days. A
	// call is bounded, runs under LockHistory, and never waits: locked rows are left for a later call. It takes
	// several steps, and a failed step does not stop the others: the error names all that failed.
	//
	// It also deletes jobs after their DeleteAfterCompletion. Beyond the longest retention it removes deleted jobs
	// and removed triggers that no history names, and the revisions of deleted definitions. The audit log has a
	// retention of its own, which apps cannot change.
	Purge(ctx context.Context, node run.NodeID, now time.Time) (Purged, error)
}
