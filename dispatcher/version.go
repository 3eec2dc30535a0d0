package dispatcher

// ServerVersion is what a node is: it needs no token.
type ServerVersion struct {
	Version string `json:"version"`
	// Zones is the release of the time zone data that the node computes with, such as 2026f.
	Zones string `json:"zones"`
}
