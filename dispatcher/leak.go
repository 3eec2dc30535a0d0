package dispatcher

import (
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
)

// LeakKind says what is held for a run, or keeps it, although nothing will free it.
type LeakKind string

// The kinds of leaks.
const (
	LeakSlot      LeakKind = "slot"      // a run that has ended still has a slot of its job or of an endpoint
	LeakHostWait  LeakKind = "host_wait" // a host is waited for, and no run does
	LeakWaiting   LeakKind = "waiting"   // a run waits for a host, and no probe will let it go
	LeakCallback  LeakKind = "callback"  // a run waits for a callback without a deadline
	LeakShard     LeakKind = "shard"     // a shard outlives the broadcast that it is part of
	LeakFollowing LeakKind = "following" // the end of a run was not followed
)

// Leak is something that is held for a run which has ended, or that keeps a run from going on, for longer than nodes take to free it.
// It is a fault of Carillon, of its database, or of somebody who edited that.
type Leak struct {
	Kind LeakKind `json:"kind"`
	Job  string   `json:"job"` // its name
	// Run is the id of the run; empty: there is none.
	Run string `json:"run,omitempty"`
	// Of is the endpoint of the slot or the host; empty: it is about neither.
	Of string `json:"of,omitempty"`
	// Node has the slot; nil: it is no slot.
	Node *run.NodeID `json:"node,omitempty"`
	// Since is when it was taken, or the run ended that is not followed; nil: that is not known.
	Since *time.Time `json:"since,omitempty"`
}
