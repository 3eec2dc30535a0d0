package dispatcher

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Groups are the endpoint groups of apps and the endpoints that they have now. Writes of definitions are as those of
// Definitions; a change of what requests need, and an endpoint that comes, changes or goes, notifies all nodes. A heartbeat
// of an endpoint that is there already does not.
type Groups interface {
	// PutGroup creates or replaces a group. It returns it as stored, without the values of its secrets, and whether it was
	// created. ErrNotFound: the app does not exist. Problems: the definition is wrong, or its secrets cannot be stored.
	PutGroup(ctx context.Context, group target.EndpointGroup, change input.Change) (stored target.EndpointGroup, created bool, err error)
	// Group returns ErrNotFound if there is none of that name.
	Group(ctx context.Context, app, name string) (target.EndpointGroup, error)
	// Groups lists by name.
	Groups(ctx context.Context, app string, page input.Page) ([]target.EndpointGroup, error)
	// DeleteGroup returns an error that is ErrInUse and names the user, while a job's target is the group. Its endpoints go
	// with it.
	DeleteGroup(ctx context.Context, app, name string, change input.Change) error

	// Endpoints lists the endpoints that a group has at now, by id. ErrNotFound: there is no such group.
	Endpoints(ctx context.Context, app, group string, now time.Time, page input.Page) ([]target.Endpoint, error)
	// RegisterEndpoint adds an endpoint to a group, or renews it, for Registration.ExpireAfter from now on. It returns the
	// endpoint, and whether it was not there. ErrNotFound: there is no such group. ErrConflict: the group takes no
	// registrations, or declares an endpoint of that id. Problems: the endpoint is not one that the group takes.
	RegisterEndpoint(ctx context.Context, app, group string, endpoint target.Endpoint, now time.Time,
		change input.Change) (target.Endpoint, bool, error)
	// DeregisterEndpoint removes an endpoint that registered itself; ErrNotFound if there is none.
	DeregisterEndpoint(ctx context.Context, app, group, id string, change input.Change) error
	// DrainEndpoint sets or lifts an operator's drain of an endpoint; it stays while the endpoint is there. A registration
	// does not lift it.
	DrainEndpoint(ctx context.Context, app, group, id string, draining bool, change input.Change) (target.Endpoint, error)
}

// Routes is what nodes read of groups.
type Routes interface {
	// GroupVersion returns a group with the values of its secrets and the endpoints that it has at now. ErrNotFound: there
	// is no such group.
	GroupVersion(ctx context.Context, app, name string, now time.Time) (target.GroupVersion, error)
	// ExpireEndpoints removes endpoints that did not register again in time, at most limit, and returns how many.
	ExpireEndpoints(ctx context.Context, limit int, now time.Time) (int, error)
}
