package dispatcher

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Node is one start of one dispatcher process.
type Node struct {
	// ID is chosen at random at each start.
	ID run.NodeID `json:"id"`
	// Name is a label, by default the host's name; two nodes may share it.
	Name    string `json:"name"`
	Version string `json:"version"`
	// Zones is the release of the time zone data that the node computes with.
	Zones string    `json:"zones"`
	State NodeState `json:"state"`
	// Apps are the apps that the node serves; empty means all.
	Apps []string `json:"apps,omitempty" schema:"Name"`
	// Labels are the labels that jobs may require of a node.
	Labels input.Labels `json:"labels,omitempty"`
	// StartedAt is by the database's clock.
	StartedAt time.Time `json:"started_at"`
	NodeHeartbeat
	NodeReport
	// Share is the fraction of all fires that the node claimed in the minute before its latest heartbeat, from 0 to
	// 1; 0 for a dead node.
	Share float64 `json:"share" schema:"max=1,min=0"`
	// Deregistered is true if a dead node deregistered itself. Other dead nodes vanished.
	Deregistered bool `json:"deregistered,omitempty"`
	// APIAddresses are the addresses, HOST:PORT, of the node's API. Webhooks of all nodes refuse to call them.
	APIAddresses []string `json:"api_addresses,omitempty"`
	// Reach is what the node can call and read besides public addresses. Only lists of nodes have it.
	Reach target.Reach `json:"reach,omitzero"`
}

// NodeHeartbeat is what the database knows of the heartbeats of a node.
type NodeHeartbeat struct {
	// HeartbeatAt is when the latest one was, by the database's clock.
	HeartbeatAt time.Time `json:"heartbeat_at"`
	// HeartbeatInterval is the time between two heartbeats of the node.
	HeartbeatInterval input.Duration `json:"heartbeat_interval"`
	// SilentFor is how long ago the latest heartbeat was, once three intervals have passed and the node does not count as
	// dead yet; left out before.
	SilentFor input.Duration `json:"silent_for,omitempty"`
}

// Serves reports whether the node may run jobs of an app that require labels.
func (n Node) Serves(appID int64, required input.Labels) bool {
	mine := len(n.Apps) == 0
	for _, app := range n.Apps {
		mine = mine || run.AppID(app) == appID
	}
	return mine && n.Labels.Have(required)
}

// WarnOfNodes warns of what no live node can call or read that serves an app and has labels; without any such node, it
// warns of nothing. It reads the fleet, which are the nodes and the bounds of the app, only if check finds something that a
// node may lack. Bounds that are nil mean the defaults.
func WarnOfNodes(app string, labels input.Labels, fleet func() ([]Node, *target.Bounds), check func(*target.Unreachable)) input.Problems {
	u := target.Unreachable{Nodes: []target.Reach{{}}}
	if check(&u); len(u.Problems) == 0 {
		return nil
	}
	u = target.Unreachable{}
	nodes, bounds := fleet()
	for _, node := range nodes {
		if node.State != NodeDead && node.Serves(run.AppID(app), labels) {
			u.Nodes = append(u.Nodes, node.Reach)
		}
	}
	if bounds != nil {
		u.Bounds = bounds.Egress
	}
	if len(u.Nodes) > 0 {
		check(&u)
	}
	return u.Problems
}

// NodeReport comes with each heartbeat of a node.
type NodeReport struct {
	// InFlight is how many runs the node held.
	InFlight int `json:"in_flight"`
	// Fires is how many fires the node claimed in the minute before.
	Fires int `json:"fires"`
	// Lag is the largest lateness since the previous heartbeat: of the fires that the node claimed and whose first attempt
	// began, and of the due ones that it has not claimed yet. Runs that waited as their job asked, retries, backfills and
	// runs taken over from another node do not count.
	Lag input.Duration `json:"lag"`
	// Saturated is true if fires were late and the node had no free worker since the previous heartbeat.
	Saturated bool `json:"saturated,omitempty"`
	// ClockOffset is how far the node's wall clock is ahead of the database's; negative if it
	// is behind. It does not move fires: the database's clock decides.
	ClockOffset input.Duration `json:"clock_offset"`
	// CertificateEndsAt is when the first certificate in its API's chain expires; nil if it serves no TLS.
	CertificateEndsAt *time.Time `json:"certificate_ends_at,omitempty"`
	// LongSince is when the latest spell of long attempts began, by the database's clock; nil if there is none. Only
	// nodes on a machine that is protected during such attempts report it.
	LongSince *time.Time `json:"-"`
}

// CertificateEnding reports whether the certificate of the node's API expires within CertificateWarning of its latest
// heartbeat, or had expired by then.
func (n Node) CertificateEnding() bool {
	return n.CertificateEndsAt != nil && n.CertificateEndsAt.Sub(n.HeartbeatAt) < CertificateWarning
}

// silentAfter is how many intervals may pass without a heartbeat of a node until it counts as silent.
const silentAfter = 3

// SilentAt returns Node.SilentFor at a time by the database's clock.
func (n Node) SilentAt(now time.Time) time.Duration {
	silent := now.Sub(n.HeartbeatAt)
	if n.State == NodeDead || n.HeartbeatInterval <= 0 || silent < silentAfter*n.HeartbeatInterval.Std() {
		return 0
	}
	return silent
}

// CompleteNodes fills in, in a list of all nodes, the shares and which are silent at now.
func CompleteNodes(nodes []Node, now time.Time) {
	total := 0
	for _, node := range nodes {
		if node.State != NodeDead {
			total += node.Fires
		}
	}
	for i := range nodes {
		nodes[i].SilentFor = input.Duration(nodes[i].SilentAt(now).Round(time.Millisecond))
		if nodes[i].Share = 0; total > 0 && nodes[i].State != NodeDead {
			nodes[i].Share = float64(nodes[i].Fires) / float64(total)
		}
	}
}

// NodeState is the state of a node.
type NodeState string

// The states of a node. Operators pause a node; a node drains by itself or on request.
const (
	NodeActive   NodeState = "active"
	NodePaused   NodeState = "paused"
	NodeDraining NodeState = "draining"
	NodeDead     NodeState = "dead" // its heartbeat is missing, or it left
)

// LateLag is how late a node may begin fires before it needs attention.
const LateLag = time.Second

// WrongClock is by how much the clock of a node may differ from the database's.
const WrongClock = 500 * time.Millisecond

// NodeReason is why a node needs attention.
type NodeReason string

// The reasons, the worst first.
const (
	NodeReasonDead      NodeReason = "dead"      // it vanished: its heartbeat is missing, and it did not leave by itself
	NodeReasonSilent    NodeReason = "silent"    // its heartbeat has been missing for silentAfter intervals
	NodeReasonPaused    NodeReason = "paused"    // an operator, or a rollback, paused it
	NodeReasonSaturated NodeReason = "saturated" // it begins fires later than LateLag, and had no free worker
	NodeReasonClock     NodeReason = "clock"     // its clock differs from the database's by more than WrongClock
	NodeReasonExpired   NodeReason = "expired"   // its API's certificate had expired at its heartbeat
	// NodeReasonCertificate: its API's certificate expires within CertificateWarning of its heartbeat
	NodeReasonCertificate NodeReason = "certificate"
	// NodeReasonZones: its time zone data differ from another node's, as is normal only during a deployment or a
	// switch
	NodeReasonZones NodeReason = "zones"
	// NodeReasonOldZones: its time zone data are older than schedule.ZonesWarning
	NodeReasonOldZones NodeReason = "old_zones"
	// NodeReasonLate: it begins fires later than LateLag, and had free workers. It may have those of another node.
	NodeReasonLate NodeReason = "late"
)

// nodeReasons are the reasons, the worst first.
var nodeReasons = []NodeReason{NodeReasonDead, NodeReasonSilent, NodeReasonPaused, NodeReasonSaturated, NodeReasonClock,
	NodeReasonExpired, NodeReasonCertificate, NodeReasonZones, NodeReasonOldZones, NodeReasonLate}

// Compare orders reasons, the worst first.
func (r NodeReason) Compare(other NodeReason) int {
	return cmp.Compare(slices.Index(nodeReasons, r), slices.Index(nodeReasons, other))
}

// CertificateWarning is how long before its expiry a certificate needs attention.
const CertificateWarning = 14 * 24 * time.Hour

// Unwell returns why a node needs attention, the worst first. The last report of a dead node does not count.
func (n Node) Unwell() (reasons []NodeReason) {
	switch {
	case n.State == NodeDead && n.Deregistered:
		return nil
	case n.State == NodeDead:
		return []NodeReason{NodeReasonDead}
	}
	if n.SilentFor > 0 {
		reasons = append(reasons, NodeReasonSilent) // its last report is old
	}
	if n.State == NodePaused {
		reasons = append(reasons, NodeReasonPaused)
	}
	if n.SilentFor == 0 && n.Saturated {
		reasons = append(reasons, NodeReasonSaturated)
	}
	if n.ClockOffset.Std().Abs() > WrongClock {
		reasons = append(reasons, NodeReasonClock)
	}
	switch {
	case !n.CertificateEnding():
	case n.CertificateEndsAt.Before(n.HeartbeatAt):
		reasons = append(reasons, NodeReasonExpired)
	default:
		reasons = append(reasons, NodeReasonCertificate)
	}
	if n.SilentFor == 0 && !n.Saturated && n.Lag.Std() > LateLag {
		reasons = append(reasons, NodeReasonLate)
	}
	return reasons
}

// HeartbeatReply is the result of a heartbeat.
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
	// RolledBack is true if the database lost commits and the rollback is unresolved.
	RolledBack bool
}

// Fleet are the nodes of the database.
type Fleet interface {
	// Installation returns the random id of this database, chosen when its schema was created.
	Installation(ctx context.Context) (string, error)
	// Clock returns now by the database's clock, to the microsecond.
	Clock(ctx context.Context) (time.Time, error)
	// Register adds a node with heartbeat now. The node is paused if its State says so or the database lost commits,
	// else active. It may return an error because it is too early to decide this. If the store serves a single
	// process (SQLite), every other node is dead from then on.
	Register(ctx context.Context, node Node, now time.Time) error
	// Heartbeat renews a node's row; ErrNodeDead if the node was marked dead.
	Heartbeat(ctx context.Context, id run.NodeID, report NodeReport, now time.Time) (HeartbeatReply, error)
	// Deregister removes a node at once, so that others need not wait until it counts as dead.
	Deregister(ctx context.Context, id run.NodeID) error
	// MarkDead marks nodes with a heartbeat older than after as dead, and returns how many. It marks none unless
	// heartbeat is the latest one of the calling node, id, and younger than half of after: a node that was
	// unreachable itself cannot judge others, and a heartbeat that it does not know of yet may mean that the
	// database's clock jumped. MarkDead also removes nodes, a hundred at a time, that died a day ago or earlier and
	// hold no live run.
	MarkDead(ctx context.Context, id run.NodeID, heartbeat time.Time, after time.Duration, now time.Time) (int, error)
	// Nodes lists the nodes, including dead ones until MarkDead removes them.
	Nodes(ctx context.Context) ([]Node, error)
	// SetNodeState pauses, resumes (NodeActive) or drains a node. ErrConflict: the node is
	// dead, or a rollback is unresolved.
	SetNodeState(ctx context.Context, id run.NodeID, state NodeState, change input.Change) (Node, error)
}

// ServerVersion is the version of a node; reading it needs no token.
type ServerVersion struct {
	Version string `json:"version"`
	// Zones is the release of the time zone data that the node computes with, such as 2026f.
	Zones string `json:"zones"`
	// ConsoleURL is the URL below which people reach the console, as --console-url says; empty if that is not known.
	ConsoleURL string `json:"console_url,omitempty"`
}
