package dispatcher

import (
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// EndpointBefore holds everything that the registration of an endpoint depends on.
type EndpointBefore struct {
	Group  target.EndpointGroup
	Bounds *target.Bounds // of its app
	Others int            // number of other endpoints of the group
	There  bool           // the group has the endpoint already
}

// Register refuses an endpoint that its group or the bounds of the app do not allow, or that exceeds their number.
func (b EndpointBefore) Register(e target.Endpoint) error {
	name := input.Echo(b.Group.Name)
	if b.Group.Registration == nil {
		return fmt.Errorf("group %s takes no registrations: %w", name, ErrConflict)
	}
	if _, declared := b.Group.Endpoints[e.ID]; declared {
		return fmt.Errorf("group %s declares an endpoint %s: %w", name, input.Echo(e.ID), ErrConflict)
	}
	var problems input.Problems
	input.CheckName(&problems, "/id", e.ID)
	problems.AddError("", b.Group.Registration.CheckEndpoint(e.StaticEndpoint))
	problems.AddError("", b.Bounds.CheckEndpoint(b.Group, e.StaticEndpoint))
	if b.Others >= target.MaxEndpoints {
		problems.Add("", input.CodeTooMany, "group %s has %d endpoints already, which is the maximum; remove one, or wait until one expires",
			name, target.MaxEndpoints)
	}
	return problems.Err()
}
