package dispatcher

// ServerVersion is the version of a node; reading it needs no token.
type ServerVersion struct {
	Version string `json:"version"`
	// Zones is the release of the time zone data that the node computes with, such as 2026f.
	Zones string `json:"zones"`
	// ConsoleURL is the URL below which people reach the console, as --console-url says; empty if that is not known.
	ConsoleURL string `json:"console_url,omitempty"`
}
