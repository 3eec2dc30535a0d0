package dispatcher

import "time"

// SaturatedLag is how late a node may begin attempts before it counts as saturated.
const SaturatedLag = time.Second

// WrongClock is by how much the clock of a node may differ from the database's.
const WrongClock = 500 * time.Millisecond

// NodeReason is why a node asks for attention.
type NodeReason string

// The reasons.
const (
	NodeReasonDead      NodeReason = "dead"      // it vanished: its heartbeat is missing, and it did not leave by itself
	NodeReasonPaused    NodeReason = "paused"    // an operator, or a rollback, paused it
	NodeReasonSaturated NodeReason = "saturated" // it begins attempts later than SaturatedLag
	NodeReasonClock     NodeReason = "clock"     // its clock differs by more than WrongClock
	// NodeReasonCertificate: the certificate of its API ends within CertificateWarning of its latest heartbeat, or has ended
	NodeReasonCertificate NodeReason = "certificate"
	// NodeReasonZones: it computes with other time zone data than another node, for longer than a deployment or a switch takes
	// if it stays
	NodeReasonZones NodeReason = "zones"
	// NodeReasonOldZones: its time zone data are older than schedule.ZonesWarning
	NodeReasonOldZones NodeReason = "old_zones"
)

// CertificateWarning is how long before its end a certificate asks for attention.
const CertificateWarning = 14 * 24 * time.Hour

// Unwell returns why a node asks for attention. What a dead node reported last counts no more.
func (n Node) Unwell() (reasons []NodeReason) {
	switch {
	case n.State == NodeDead && n.Deregistered:
		return nil
	case n.State == NodeDead:
		return []NodeReason{NodeReasonDead}
	case n.State == NodePaused:
		reasons = append(reasons, NodeReasonPaused)
	}
	if n.Lag.Std() > SaturatedLag {
		reasons = append(reasons, NodeReasonSaturated)
	}
	if n.ClockOffset.Std().Abs() > WrongClock {
		reasons = append(reasons, NodeReasonClock)
	}
	if n.CertificateEnding() {
		reasons = append(reasons, NodeReasonCertificate)
	}
	return reasons
}
