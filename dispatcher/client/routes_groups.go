package client

import (
	"context"
	"net/http"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Groups lists the endpoint groups of an app by name.
func (c *Client) Groups(ctx context.Context, app string, page input.Page) (List[target.EndpointGroup], error) {
	return list[target.EndpointGroup](ctx, c, path("apps", app, "groups")+params(dispatcher.RunQuery{Page: page}))
}

// PutGroup creates or replaces an endpoint group.
func (c *Client) PutGroup(ctx context.Context, group target.EndpointGroup, cond Condition) (target.EndpointGroup, error) {
	return send(ctx, c, request[target.EndpointGroup]{
		method: http.MethodPut, path: path("apps", group.App, "groups", group.Name), body: target.ForWire(group), cond: cond,
		is: isGroup(group.App, group.Name),
	})
}

// Group gets an endpoint group.
func (c *Client) Group(ctx context.Context, app, name string) (target.EndpointGroup, error) {
	return get(ctx, c, path("apps", app, "groups", name), isGroup(app, name))
}

// DeleteGroup deletes an endpoint group with its endpoints; ErrConflict while a job's target is the group.
func (c *Client) DeleteGroup(ctx context.Context, app, name string, cond Condition) error {
	return c.remove(ctx, path("apps", app, "groups", name), cond)
}

// GroupStatus gets what the node that responds knows of an endpoint group and its endpoints.
func (c *Client) GroupStatus(ctx context.Context, app, name string) (target.GroupStatus, error) {
	return get(ctx, c, path("apps", app, "groups", name, "status"), func(s target.GroupStatus) bool { return s.Endpoints != nil })
}

// Endpoints lists the endpoints that a group has now, by id.
func (c *Client) Endpoints(ctx context.Context, app, group string, page input.Page) (List[target.Endpoint], error) {
	return list[target.Endpoint](ctx, c, path("apps", app, "groups", group, "endpoints")+params(dispatcher.RunQuery{Page: page}))
}

// RegisterEndpoint adds an endpoint to a group, or renews it until its ExpiresAt. ErrConflict: the group takes no
// registrations, or declares an endpoint of that id.
func (c *Client) RegisterEndpoint(
	ctx context.Context, app, group, id string, endpoint target.StaticEndpoint,
) (target.Endpoint, error) {
	return send(ctx, c, request[target.Endpoint]{
		method: http.MethodPut, path: path("apps", app, "groups", group, "endpoints", id), body: endpoint, is: isEndpoint(id),
	})
}

// DeregisterEndpoint removes an endpoint that registered itself; ErrNotFound if there is none.
func (c *Client) DeregisterEndpoint(ctx context.Context, app, group, id string) error {
	return c.remove(ctx, path("apps", app, "groups", group, "endpoints", id), Condition{})
}

// DrainEndpoint sets an operator's drain of an endpoint, or lifts it.
func (c *Client) DrainEndpoint(ctx context.Context, app, group, id string, draining bool) (target.Endpoint, error) {
	verb := "resume"
	if draining {
		verb = "drain"
	}
	return post(ctx, c, path("apps", app, "groups", group, "endpoints", id, verb), nil, isEndpoint(id))
}

func isGroup(app, name string) func(target.EndpointGroup) bool {
	return func(group target.EndpointGroup) bool { return group.App == app && group.Name == name }
}

func isEndpoint(id string) func(target.Endpoint) bool {
	return func(endpoint target.Endpoint) bool { return endpoint.ID == id }
}
