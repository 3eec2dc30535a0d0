package dispatcher

import (
	"context"
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
