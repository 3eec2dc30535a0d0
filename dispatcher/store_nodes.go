package dispatcher

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// HeartbeatReply is what a heartbeat returns.
type HeartbeatReply struct {
	// State is the node's state as the operator wants it.
	State NodeState
	// At is when the heartbeat was stored, by the database's clock.
	At time.Time
	// OperatorState is State without the pause that a rollback causes.
	OperatorState NodeState
	// Live are all nodes that may claim, by id, including the node itself if it may.
	Live []Node
	// APIs are the addresses, HOST:PORT, of the APIs of all other nodes that are not dead.
	APIs []string
	// RolledBack tells that the database lost commits and that the rollback is unresolved.
	RolledBack bool
}

// Fleet are the nodes of the database.
type Fleet interface {
	// Installation returns the random id of this database, drawn when its schema was made.
	Installation(ctx context.Context) (string, error)
	// Clock returns now by the database's clock, to the microsecond.
	Clock(ctx context.Context) (time.Time, error)
	// Register adds a node with heartbeat now. The node is paused if its State says so or the
	// database lost commits, else active. An error may say that it is too early to tell.
	// If the store serves a single process (SQLite), every other node is dead from then on.
	Register(ctx context.Context, node Node, now time.Time) error
	// Heartbeat renews a node's row; ErrNodeDead if the node was marked dead.
	Heartbeat(ctx context.Context, id run.NodeID, report NodeReport, now time.Time) (HeartbeatReply, error)
	// Deregister removes a node at once, so that others need not wait until it counts as dead.
	Deregister(ctx context.Context, id run.NodeID) error
	// MarkDead marks the nodes dead whose heartbeat is older than after, and returns how many. It
	// marks none unless heartbeat is the latest one of id, the asking node, and younger than half
	// of after: a node that was unreachable itself cannot judge others, and a heartbeat that it does
	// not know of yet may mean that the database's clock jumped. MarkDead also removes nodes, a
	// hundred at a time, that died a day ago or earlier and hold no live run.
	MarkDead(ctx context.Context, id run.NodeID, heartbeat time.Time, after time.Duration, now time.Time) (int, error)
	// Nodes lists the nodes, including dead ones until MarkDead removes them.
	Nodes(ctx context.Context) ([]Node, error)
	// SetNodeState pauses, resumes (NodeActive) or drains a node. ErrConflict: the node is
	// dead, or a rollback is unresolved.
	SetNodeState(ctx context.Context, id run.NodeID, state NodeState, change input.Change) (Node, error)
}
