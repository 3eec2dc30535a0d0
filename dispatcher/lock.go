package dispatcher

import (
	"context"
	"time"
)

// Locks keep nodes from doing the same work at the same time or one after the other. They save
// work and no more: what is done under one is a compare-and-swap, or presents its fence.
type Locks interface {
	// Lock takes those of the named locks that are free, in one statement, and returns them.
	// It waits for none.
	Lock(ctx context.Context, request LockRequest) ([]Lock, error)
	// Unlock gives locks back. Those that were lost meanwhile stay with their new holders.
	Unlock(ctx context.Context, locks []Lock) error
}

// LockRequest asks for locks. By the database's clock they are free again when AtMost has passed,
// or when they are given back, but not before AtLeast has passed: that is the window in which
// nodes whose loops are apart do not repeat each other's work. Who asks for the same lock asks for
// the same AtMost.
type LockRequest struct {
	Node            NodeID
	Names           []string
	AtMost, AtLeast time.Duration
	Now             time.Time
}

// Lock is one that was taken. Fence counts its holders: only who has the latest may write under it.
type Lock struct {
	Name  string
	Node  NodeID
	Fence int64
}

// The names of locks.
const (
	LockFleet    = "fleet"    // the care for nodes
	LockHistory  = "history"  // the clean-up of the ledger
	LockStates   = "states"   // the states of jobs
	LockZones    = "zones"    // fire times, when the time zone database has changed
	LockRollback = "rollback" // what an operator chose to skip, when the database lost commits
)

// LockApp is the name of the lock of an app.
func LockApp(app string) string { return "app/" + app }
