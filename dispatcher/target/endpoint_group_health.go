package target

import (
	"cmp"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// HealthCheck is a request without a body that each node makes, at intervals, to the endpoints of groups that it
// routes to. An endpoint that responds with 2xx is healthy. An unhealthy one gets no requests from that node.
type HealthCheck struct {
	// Path is requested with GET, below the path of the group; empty means /healthz.
	Path string `json:"path,omitempty"`
	// Interval is the time between checks of one endpoint by one node; 0 means 10s.
	Interval input.Duration `json:"interval,omitempty"`
	// Timeout bounds a check; 0 means 3s. A node makes one check of an endpoint at a time, even if that takes longer
	// than Interval.
	Timeout input.Duration `json:"timeout,omitempty"`
	// HealthyThreshold is how many healthy responses in a row bring a down endpoint up again; 0 means 2.
	HealthyThreshold int `json:"healthy_threshold,omitempty" schema:"max=10,min=1"`
	// UnhealthyThreshold is how many failures in a row take an endpoint down; 0 means 3.
	UnhealthyThreshold int `json:"unhealthy_threshold,omitempty" schema:"max=10,min=1"`
}

// The defaults and bounds of health checks and ejections.
const (
	DefaultHealthInterval     = input.Duration(10 * time.Second)
	DefaultHealthTimeout      = input.Duration(3 * time.Second)
	DefaultHealthyThreshold   = 2
	DefaultUnhealthyThreshold = 3
	MaxHealthThreshold        = 10
	DefaultEjectAfter         = 5
	MaxEjectAfter             = 1000
)

// SetDefaults gives a decoded check the values of fields that its JSON leaves out.
func (h *HealthCheck) SetDefaults() { *h = HealthCheck{}.Resolved() }

// Resolved returns h with defaults for the fields that it leaves out.
func (h HealthCheck) Resolved() HealthCheck {
	return HealthCheck{
		Path:               cmp.Or(h.Path, DefaultAlivePath),
		Interval:           cmp.Or(h.Interval, DefaultHealthInterval),
		Timeout:            cmp.Or(h.Timeout, DefaultHealthTimeout),
		HealthyThreshold:   cmp.Or(h.HealthyThreshold, DefaultHealthyThreshold),
		UnhealthyThreshold: cmp.Or(h.UnhealthyThreshold, DefaultUnhealthyThreshold),
	}
}

func (h *HealthCheck) check(problems *input.Problems, at string) {
	if h == nil {
		return
	}
	if h.Path != "" {
		checkPath(problems, at+"/path", h.Path)
	}
	if h.Interval != 0 {
		h.Interval.CheckRange(problems, at+"/interval", time.Second, time.Hour)
	}
	if h.Timeout != 0 {
		h.Timeout.CheckRange(problems, at+"/timeout", input.MinDuration, time.Minute)
	}
	if h.HealthyThreshold != 0 {
		input.CheckRange(problems, at+"/healthy_threshold", h.HealthyThreshold, 1, MaxHealthThreshold)
	}
	if h.UnhealthyThreshold != 0 {
		input.CheckRange(problems, at+"/unhealthy_threshold", h.UnhealthyThreshold, 1, MaxHealthThreshold)
	}
}

// EndpointState is the state of an endpoint, as one node sees it.
type EndpointState string

// The states of endpoints.
const (
	EndpointUp       EndpointState = "up"       // gets requests
	EndpointSuspect  EndpointState = "suspect"  // refused connections, or was ejected; tried after all that are up
	EndpointDown     EndpointState = "down"     // fails health checks; gets no requests
	EndpointDraining EndpointState = "draining" // an operator drains it
)

// EndpointStates lists the states.
var EndpointStates = []EndpointState{EndpointUp, EndpointSuspect, EndpointDown, EndpointDraining}

// GroupStatus is the state of a group, as one node sees it. Other nodes may differ.
type GroupStatus struct {
	// Node is the id of that node; empty if it has not started.
	Node string `json:"node"`
	// DNS are the states of names, by their names in the group.
	DNS map[string]DNSStatus `json:"dns"`
	// Endpoints are the states of all endpoints, by their ids.
	Endpoints []EndpointStatus `json:"endpoints"`
}

// EndpointStatus is the status of an endpoint, as one node sees it.
type EndpointStatus struct {
	ID string `json:"id" schema:"Name"`
	// suspect: it refused connections, or was ejected, and is tried after all others. down: it fails its
	// health checks.
	State EndpointState `json:"state"`
	// Reason is why the endpoint is suspect or down.
	Reason string `json:"reason,omitempty"`
	// Until is how long a suspect is tried after all others; nil for others.
	Until *time.Time `json:"until,omitempty"`
}

// GroupCount counts the endpoints of a group that a node knows, by state.
type GroupCount struct {
	App, Group string
	States     map[EndpointState]int
}
