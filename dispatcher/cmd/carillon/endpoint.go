package main

import (
	"context"

	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// endpointCommand lists and drains the endpoints of groups.
type endpointCommand struct {
	List   endpointListCommand   `cmd:"" help:"List the endpoints that a group has now." example:"carillon endpoint list billing/workers"`
	Drain  endpointDrainCommand  `cmd:"" help:"Send an endpoint no new runs until it is resumed." example:"carillon endpoint drain billing/workers worker-1"`
	Resume endpointResumeCommand `cmd:"" help:"Let a drained endpoint get runs again." example:"carillon endpoint resume billing/workers worker-1"`
}

// endpointListCommand lists endpoints.
type endpointListCommand struct{ groupFlags }

// Run prints the endpoints.
func (e *endpointListCommand) Run(ctx context.Context, c console) error {
	api, app, group, err := e.open(ctx)
	if err != nil {
		return err
	}
	all, _, err := allPages(0, func(page input.Page) (client.List[target.Endpoint], error) {
		return api.Endpoints(ctx, app, group, page)
	})
	if err != nil {
		return err
	}
	titles := "ENDPOINT\tURL\tWEIGHT\tBACKUP\tSTATE\tSOURCE\tSINCE\tEXPIRES AT\tLABELS"
	return printList(e.outputFlags, c, all, titles, func(one target.Endpoint) []any {
		var expires any = "-" // declared ones stay
		if one.ExpiresAt != nil {
			expires = one.ExpiresAt
		}
		backup := map[bool]string{true: "yes", false: "no"}[one.Backup]
		return []any{one.ID, one.URL, one.Weight, backup, endpointState(one), string(one.Source), one.RegisteredAt, expires, one.Labels}
	})
}

// endpointState is what operators decide about an endpoint: by a drain, or by the addresses that may be called. Whether it
// responds, each node knows for itself.
func endpointState(e target.Endpoint) stateCell {
	switch {
	case e.Refused != "":
		return "refused"
	case e.Draining:
		return "draining"
	}
	return "active"
}

// endpointFlags name one endpoint.
type endpointFlags struct {
	groupFlags
	ID string `arg:"" help:"Id of the endpoint, from carillon endpoint list."`
}

// set begins or ends the drain of the endpoint.
func (e *endpointFlags) set(ctx context.Context, c console, draining bool) error {
	api, app, group, err := e.open(ctx)
	if err != nil {
		return err
	}
	endpoint, err := api.DrainEndpoint(ctx, app, group, e.ID, draining)
	if err != nil {
		return err
	}
	return printObject(e.outputFlags, c, endpoint, func(l *lines) {
		l.add("endpoint", endpoint.ID)
		l.add("url", endpoint.URL)
		l.add("state", endpointState(endpoint))
		l.add("source", string(endpoint.Source))
	})
}

// endpointDrainCommand drains an endpoint.
type endpointDrainCommand struct{ endpointFlags }

// Run drains the endpoint.
func (e *endpointDrainCommand) Run(ctx context.Context, c console) error { return e.set(ctx, c, true) }

// endpointResumeCommand ends the drain of an endpoint.
type endpointResumeCommand struct{ endpointFlags }

// Run ends the drain.
func (e *endpointResumeCommand) Run(ctx context.Context, c console) error {
	return e.set(ctx, c, false)
}
