package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/api/decode"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// listGroups lists the endpoint groups of an app by name.
func (a *API) listGroups(r *request) (response, error) {
	name := func(g target.EndpointGroup) string { return g.Name }
	return pagedByName(r, name, func(page input.Page) ([]target.EndpointGroup, error) {
		return a.store.Groups(r.Context(), r.PathValue("app"), page)
	})
}

// getGroup gets an endpoint group.
func (a *API) getGroup(r *request) (response, error) {
	group, err := a.store.Group(r.Context(), r.PathValue("app"), r.PathValue("group"))
	return response{revision: group.Revision, body: group}, err
}

// putGroup creates or replaces an endpoint group. Declared endpoints that are no longer in the declaration are removed,
// as are registered ones that are outside its networks or ports. The others keep their drain.
func (a *API) putGroup(r *request) (response, error) {
	group := target.EndpointGroup{App: r.PathValue("app"), Name: r.PathValue("group")}
	problems := r.Decode(&group)
	mustMatch(&problems, "/app", group.App, r.PathValue("app"))
	mustMatch(&problems, "/name", group.Name, r.PathValue("group"))
	return put(a, r, group, problems, a.store.PutGroup, func(stored target.EndpointGroup) int64 { return stored.Revision })
}

// deleteGroup deletes an endpoint group with its endpoints. While a job uses it as its target, returns 409 with code
// group_in_use. With when_unused=true, it returns 202 instead, and the change that removes the last use deletes the group.
// A PUT keeps it.
func (a *API) deleteGroup(r *request) (response, error) {
	app, name := r.PathValue("app"), r.PathValue("group")
	return removeUnused(a, r, deletion[target.EndpointGroup]{
		now: func(by input.Change) error {
			return withRemedy(a.store.DeleteGroup(r.Context(), app, name, by), dispatcher.ErrInUse, input.CodeGroupInUse,
				"give the job another target, or delete it, first, or delete the group with ?when_unused=true")
		},
		whenUnused: func(by input.Change) (*target.EndpointGroup, error) {
			return a.store.DeleteGroupWhenUnused(r.Context(), app, name, by)
		},
		revision: func(g target.EndpointGroup) int64 { return g.Revision },
	})
}

// registerEndpoint registers an endpoint, or renews its registration. Needs scope register or write. It is a heartbeat:
// repeat it every registration.heartbeat; the endpoint is removed at expires_at. It takes no condition. A URL outside
// the networks or ports of the group returns 422 with code egress_denied; a name is accepted, and its addresses are
// checked at each connection. Returns 409 if the group takes no registrations, or declares an endpoint with that id.
//
// registerEndpoint takes the heartbeat of an endpoint. It has no condition: the latest one has the current address of
// the endpoint.
func (a *API) registerEndpoint(r *request) (response, error) {
	endpoint := target.Endpoint{ID: r.PathValue("endpoint")}
	problems := r.Decode(&endpoint)
	mustMatch(&problems, "/id", endpoint.ID, r.PathValue("endpoint"))
	input.CheckName(&problems, "/id", r.PathValue("endpoint"))
	decode.AddInvalid(&problems, endpoint.Validate())
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	if err := noCondition(r, "an endpoint"); err != nil {
		return response{}, err
	}
	app, group := r.PathValue("app"), r.PathValue("group")
	stored, created, err := a.store.RegisterEndpoint(r.Context(), app, group, endpoint, r.By())
	if err != nil {
		return response{}, conflict(err, "register in a group that has registration, under an id that the group does not declare")
	}
	if !created {
		return response{body: stored}, nil
	}
	a.registrations.note(r.Context(), cameEndpoint, app, group, endpoint.ID)
	return response{status: http.StatusCreated, body: stored}, nil
}

// deregisterEndpoint removes an endpoint that registered itself. Needs scope register or write, and takes no condition.
// Declared endpoints stay: change the group instead.
func (a *API) deregisterEndpoint(r *request) (response, error) {
	if err := noCondition(r, "an endpoint"); err != nil {
		return response{}, err
	}
	app, group, id := r.PathValue("app"), r.PathValue("group"), r.PathValue("endpoint")
	err := a.store.DeregisterEndpoint(r.Context(), app, group, id, r.By())
	if err == nil {
		a.registrations.note(r.Context(), leftEndpoint, app, group, id)
	}
	return response{status: http.StatusNoContent}, err
}

// noCondition refuses a condition on an object without a revision for it.
func noCondition(r *request, thing string) error {
	for _, name := range []string{"If-Match", "If-None-Match"} {
		if len(r.Header.Values(name)) > 0 {
			return input.Refuse(input.CodePrecondition, "%s has no revision; leave out %s", thing, name)
		}
	}
	return nil
}

// Fleet is the node's own view of endpoint groups, apart from the store.
type Fleet interface {
	// Members returns the endpoints of a group's DNS names, by their ids: those that an app with some bounds may call,
	// and those that are refused. It may wait for name servers.
	Members(ctx context.Context, group target.EndpointGroup, egress target.EgressBounds) (members, refused []target.Endpoint)
	// GroupStatus returns the node's view of a group of an app with some bounds, and of its endpoints. It may wait for
	// name servers.
	GroupStatus(ctx context.Context, group target.GroupVersion, egress target.EgressBounds) target.GroupStatus
}

// listEndpoints lists the current endpoints of a group, by id.
func (a *API) listEndpoints(r *request) (response, error) {
	app, name := r.PathValue("app"), r.PathValue("group")
	named, err := a.namedEndpoints(r, app, name)
	if err != nil {
		return response{}, err
	}
	return pagedByName(r, func(e target.Endpoint) string { return e.ID }, func(page input.Page) ([]target.Endpoint, error) {
		stored, err := a.store.Endpoints(r.Context(), app, name, time.Time{}, page)
		if err != nil || len(named) == 0 {
			return stored, err
		}
		return mergedPage(stored, named, page), nil
	})
}

// namedEndpoints returns the endpoints of a group's DNS names, by their ids. Those that may not be called are only for
// operators: their addresses reveal the network of the nodes.
func (a *API) namedEndpoints(r *request, app, name string) ([]target.Endpoint, error) {
	if a.opts.Fleet == nil {
		return nil, nil
	}
	group, err := a.store.Group(r.Context(), app, name)
	if err != nil || len(group.DNS) == 0 {
		return nil, err
	}
	egress, err := a.egressOf(r.Context(), app)
	if err != nil {
		return nil, err
	}
	members, refused := a.opts.Fleet.Members(r.Context(), group, egress)
	if r.IsBound() {
		return members, nil
	}
	all := slices.Concat(members, refused)
	slices.SortFunc(all, byEndpointID)
	return all, nil
}

func (a *API) egressOf(ctx context.Context, name string) (egress target.EgressBounds, err error) {
	app, err := a.store.App(ctx, name)
	if err == nil && app.Bounds != nil {
		egress = app.Bounds.Egress
	}
	return egress, err
}

func byEndpointID(a, b target.Endpoint) int { return cmp.Compare(a.ID, b.ID) }

// mergedPage adds endpoints from DNS to a page of stored ones. If two have the same id, the stored one counts.
func mergedPage(stored, named []target.Endpoint, page input.Page) []target.Endpoint {
	after, found := slices.BinarySearchFunc(named, target.Endpoint{ID: page.Cursor}, byEndpointID)
	if found {
		after++
	}
	all := slices.Concat(stored, named[after:])
	slices.SortStableFunc(all, byEndpointID)
	all = slices.CompactFunc(all, func(a, b target.Endpoint) bool { return a.ID == b.ID })
	return all[:min(len(all), page.Limit)]
}

// getGroupStatus shows the view of a group and its endpoints on the node that responds. Each node resolves names and
// checks endpoints for itself, so other nodes may see other states.
func (a *API) getGroupStatus(r *request) (response, error) {
	if a.opts.Fleet == nil {
		return response{}, input.Refuse(input.CodeUnavailable, "the node makes no requests to endpoints")
	}
	group, err := a.store.Group(r.Context(), r.PathValue("app"), r.PathValue("group"))
	if err != nil {
		return response{}, err
	}
	version := target.GroupVersion{EndpointGroup: group}
	page := input.Page{Limit: target.MaxEndpoints}
	if version.Live, err = a.store.Endpoints(r.Context(), group.App, group.Name, time.Time{}, page); err != nil {
		return response{}, err
	}
	egress, err := a.egressOf(r.Context(), group.App)
	if err != nil {
		return response{}, err
	}
	status := a.opts.Fleet.GroupStatus(r.Context(), version, egress)
	if r.IsBound() {
		for label, one := range status.DNS {
			one.Error, _ = target.HideAddresses(one.Error, netip.Addr{}) // of name servers
			status.DNS[label] = one
		}
	}
	return response{body: status}, nil
}

// drainEndpoint serves drain and resume.
func drainEndpoint(draining bool) func(*API, *request) (response, error) {
	return func(a *API, r *request) (response, error) {
		app, group, id := r.PathValue("app"), r.PathValue("group"), r.PathValue("endpoint")
		stored, err := a.store.DrainEndpoint(r.Context(), app, group, id, draining, r.By())
		if errors.Is(err, dispatcher.ErrNotFound) {
			named, _ := a.namedEndpoints(r, app, group)
			if _, from := slices.BinarySearchFunc(named, target.Endpoint{ID: id}, byEndpointID); from {
				return response{}, input.Refuse(input.CodeStateConflict, "endpoint %s is there because a name of the group leads to it; "+
					"take it out of DNS, and nodes leave it out once the TTL has passed", input.Echo(id))
			}
		}
		return response{body: stored}, err
	}
}
