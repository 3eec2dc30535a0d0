package dispatcher

import "time"

// Node is one start of one dispatcher process.
type Node struct {
	// ID is drawn at random at each start.
	ID NodeID `json:"id"`
	// Name is a label, by default the host's name; two nodes may share it.
	Name    string    `json:"name"`
	Version string    `json:"version"`
	State   NodeState `json:"state"`
	// StartedAt and HeartbeatAt are by the database's clock.
	StartedAt   time.Time `json:"started_at"`
	HeartbeatAt time.Time `json:"heartbeat_at"`
	// InFlight is how many runs the node held at its latest heartbeat.
	InFlight int `json:"in_flight"`
}

// NodeState is the state of a node.
type NodeState string

// The states of a node. Only an operator pauses; only the node itself drains.
const (
	NodeActive   NodeState = "active"
	NodePaused   NodeState = "paused"
	NodeDraining NodeState = "draining"
	NodeDead     NodeState = "dead" // its heartbeat stayed out, or it left
)

// APIToken is a bearer token of the HTTP API. The token itself is shown once, at its creation.
type APIToken struct {
	Name string `json:"name"`
	// Hash is the SHA-256 of the token.
	Hash [32]byte `json:"-"`
	// Scope is what the token allows.
	Scope Scope `json:"scope"`
	// Apps are the apps that the token is bound to; empty means all of them, and the nodes.
	Apps      []string  `json:"apps"`
	CreatedAt time.Time `json:"created_at"`
}

// Scope is what a token allows.
type Scope string

// The scopes.
const (
	ScopeRead  Scope = "read"
	ScopeWrite Scope = "write" // includes read
)
