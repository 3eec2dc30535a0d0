package dispatcher

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
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
