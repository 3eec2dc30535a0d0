package dispatcher

import (
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// Node is one start of one dispatcher process.
type Node struct {
	// ID is drawn at random at each start.
	ID run.NodeID `json:"id"`
	// Name is a label, by default the host's name; two nodes may share it.
	Name    string `json:"name"`
	Version string `json:"version"`
	// Zones is the release of the time zone data that the node computes with.
	Zones string    `json:"zones"`
	State NodeState `json:"state"`
	// Apps are those that the node serves; empty: all.
	Apps []string `json:"apps,omitempty"`
	// Labels are what jobs may require of a node.
	Labels input.Labels `json:"labels,omitempty"`
	// StartedAt and HeartbeatAt are by the database's clock.
	StartedAt   time.Time `json:"started_at"`
	HeartbeatAt time.Time `json:"heartbeat_at"`
	NodeReport
	// Share is the fraction of all fires that the node claimed in the minute before its
	// latest heartbeat, from 0 to 1; 0 of a dead node.
	Share float64 `json:"share"`
	// Deregistered tells that a dead node left by itself. Another one vanished.
	Deregistered bool `json:"deregistered,omitempty"`
	// APIAddresses are the addresses, HOST:PORT, on which the node serves its API. No webhook of any node calls them.
	APIAddresses []string `json:"api_addresses,omitempty"`
}

// Serves tells whether the node may run jobs of an app that require labels.
func (n Node) Serves(appID int64, required input.Labels) bool {
	mine := len(n.Apps) == 0
	for _, app := range n.Apps {
		mine = mine || run.AppID(app) == appID
	}
	return mine && n.Labels.Have(required)
}

// NodeReport is what a node reports with a heartbeat.
type NodeReport struct {
	// InFlight is how many runs the node held.
	InFlight int `json:"in_flight"`
	// Fires is how many fires the node claimed in the minute before.
	Fires int `json:"fires"`
	// Lag is the latest start of an attempt since the previous heartbeat.
	Lag input.Duration `json:"lag"`
	// ClockOffset is how far the node's wall clock is ahead of the database's; negative if it
	// is behind. It does not move fires: the database's clock decides.
	ClockOffset input.Duration `json:"clock_offset"`
	// CertificateEndsAt is when the first certificate of its API's chain ends; nil: it serves no TLS.
	CertificateEndsAt *time.Time `json:"certificate_ends_at,omitempty"`
	// LongSince is when the latest spell of long attempts began, by the database's clock; nil: there is
	// none. Only nodes whose machine is protected during such attempts report it.
	LongSince *time.Time `json:"-"`
}

// CertificateEnding tells that the certificate of the node's API ends within CertificateWarning of its latest heartbeat, or has
// ended then.
func (n Node) CertificateEnding() bool {
	return n.CertificateEndsAt != nil && n.CertificateEndsAt.Sub(n.HeartbeatAt) < CertificateWarning
}

// SetShares fills in the shares of a list of all nodes.
func SetShares(nodes []Node) {
	total := 0
	for _, node := range nodes {
		if node.State != NodeDead {
			total += node.Fires
		}
	}
	for i := range nodes {
		if nodes[i].Share = 0; total > 0 && nodes[i].State != NodeDead {
			nodes[i].Share = float64(nodes[i].Fires) / float64(total)
		}
	}
}

// NodeState is the state of a node.
type NodeState string

// The states of a node. Operators pause a node; a node drains itself or is told to.
const (
	NodeActive   NodeState = "active"
	NodePaused   NodeState = "paused"
	NodeDraining NodeState = "draining"
	NodeDead     NodeState = "dead" // its heartbeat is missing, or it left
)
