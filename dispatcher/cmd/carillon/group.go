package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// groupCommand shows and deletes endpoint groups.
type groupCommand struct {
	List   groupListCommand   `cmd:"" aliases:"ls" help:"List the endpoint groups of an app." example:"carillon group list billing"`
	Show   groupShowCommand   `cmd:"" aliases:"describe" help:"Show an endpoint group as it is declared." example:"carillon group show billing/workers"`
	Status groupStatusCommand `cmd:"" help:"Show what a node knows of an endpoint group: its names of DNS and the states of its endpoints." example:"carillon group status billing/workers"`
	Delete groupDeleteCommand `cmd:"" help:"Delete an endpoint group that no job uses." example:"carillon group delete billing/workers"`
}

type groupListCommand struct{ appListFlags }

func (l *groupListCommand) Run(ctx context.Context, c console) error {
	titles := "GROUP\tSTRATEGY\tDECLARED\tREGISTER FROM\tREVISION\tUPDATED AT"
	return listBy((*client.Client).Groups).show(ctx, c, l.appListFlags, titles, func(one target.EndpointGroup) []any {
		networks := "-"
		if one.Registration != nil {
			networks = strings.Join(one.Registration.Networks, ",")
		}
		return []any{one.App + "/" + one.Name, one.Strategy, len(one.Endpoints), networks, one.Revision, one.UpdatedAt}
	})
}

type groupFlags struct {
	apiFlags
	outputFlags
	Group string `arg:"" name:"app/group" help:"The endpoint group, such as billing/workers."`
}

// open returns a client, and the names of app and group.
func (g *groupFlags) open(ctx context.Context) (api *client.Client, app, group string, err error) {
	return g.named(ctx, g.Group, "APP/GROUP")
}

type groupShowCommand struct{ groupFlags }

func (s *groupShowCommand) Run(ctx context.Context, c console) error {
	return printNamed(ctx, c, s, (*client.Client).Group, func(l *lines, group target.EndpointGroup) {
		l.add("group", group.App+"/"+group.Name)
		l.add("description", group.Description)
		if group.Kind == target.GroupXXLJob {
			l.add("kind", string(group.Kind)+", AppName "+group.ExecutorName())
		}
		l.add("strategy", string(group.Strategy))
		l.add("path", group.Path)
		l.add("server name", group.ServerName)
		l.add("probe", fmt.Sprintf("alive %s, idle %s, at most %s", group.Probe.AlivePath, group.Probe.IdlePath, group.Probe.Timeout))
		if r := group.Registration; r != nil {
			l.add("register from", strings.Join(r.Networks, ", ")+", ports "+strings.Trim(fmt.Sprint(r.Ports), "[]"))
			l.add("heartbeat", fmt.Sprintf("every %s, gone after %s", r.Heartbeat, r.ExpireAfter))
		}
		if h := group.HealthCheck; h != nil {
			l.add("health check", fmt.Sprintf("%s every %s, at most %s, down after %d, up after %d", h.Path, h.Interval, h.Timeout,
				h.UnhealthyThreshold, h.HealthyThreshold))
		}
		if group.EjectAfter > 0 {
			l.add("eject after", input.Count(group.EjectAfter, "failure")+" in a row")
		}
		l.add("revision", fmt.Sprintf("%d of %s", group.Revision, input.FormatInstant(group.UpdatedAt)))
		for _, id := range slices.Sorted(maps.Keys(group.Endpoints)) {
			l.add("endpoint "+id, group.Endpoints[id].URL)
		}
		for _, label := range slices.Sorted(maps.Keys(group.DNS)) {
			l.add("dns "+label, nameOf(group.DNS[label]))
		}
	})
}

func nameOf(d target.DNSMembers) string {
	text := fmt.Sprintf("%s records of %s by %s", d.Type, d.Hostname, d.Scheme)
	if d.Port != 0 {
		text += fmt.Sprintf(", port %d", d.Port)
	}
	return text
}

// groupStatusCommand shows the status of a group as a node sees it.
type groupStatusCommand struct{ groupFlags }

func (s *groupStatusCommand) Run(ctx context.Context, c console) error {
	return printNamed(ctx, c, s, (*client.Client).GroupStatus, func(l *lines, status target.GroupStatus) {
		l.add("node", status.Node)
		for _, label := range slices.Sorted(maps.Keys(status.DNS)) {
			one := status.DNS[label]
			text := fmt.Sprintf("%s records of %s: %s", one.Type, one.Hostname, input.Count(one.Members, "endpoint"))
			if one.ResolvedAt != nil {
				text += ", resolved at " + input.FormatInstant(*one.ResolvedAt)
			}
			if one.Refused > 0 {
				text += fmt.Sprintf(", %d more are refused: %s", one.Refused, strings.Join(one.RefusedBecause, "; "))
			}
			if one.Error != "" {
				text += ", error: " + one.Error
			}
			l.add("dns "+label, text)
		}
		for _, one := range status.Endpoints {
			text := string(one.State)
			if one.Reason != "" {
				text += ": " + one.Reason
			}
			if one.Until != nil {
				text += ", until " + input.FormatInstant(*one.Until)
			}
			l.add("endpoint "+one.ID, text)
		}
	})
}

type groupDeleteCommand struct {
	apiFlags
	Group string `arg:"" name:"app/group" help:"The endpoint group, such as billing/workers."`
}

// Run deletes the group, unless it has changed since it was read.
func (d *groupDeleteCommand) Run(ctx context.Context, c console) error {
	of := groupFlags{apiFlags: d.apiFlags, Group: d.Group}
	api, app, name, err := of.open(ctx)
	if err != nil {
		return err
	}
	group, err := api.Group(ctx, app, name)
	if err != nil {
		return err
	}
	if err := api.DeleteGroup(ctx, app, name, client.Condition{Revision: group.Revision}); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.out, "endpoint group %s/%s is deleted\n", app, name)
	return err
}

// endpointCommand lists and drains the endpoints of groups.
type endpointCommand struct {
	List   endpointListCommand   `cmd:"" aliases:"ls" help:"List the endpoints that a group has now." example:"carillon endpoint list billing/workers"`
	Drain  endpointDrainCommand  `cmd:"" help:"Send an endpoint no new runs until it is resumed." example:"carillon endpoint drain billing/workers worker-1"`
	Resume endpointResumeCommand `cmd:"" help:"Let a drained endpoint get runs again." example:"carillon endpoint resume billing/workers worker-1"`
}

type endpointListCommand struct{ groupFlags }

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
		var expires any = "-" // declared endpoints do not expire
		if one.ExpiresAt != nil {
			expires = one.ExpiresAt
		}
		backup := map[bool]string{true: "yes", false: "no"}[one.Backup]
		return []any{one.ID, one.URL, one.Weight, backup, endpointState(one), string(one.Source), one.RegisteredAt, expires, one.Labels}
	})
}

// endpointState is the decision of operators about an endpoint: a drain, or the addresses that may
// be called. Each node checks by itself whether it responds.
func endpointState(e target.Endpoint) stateCell {
	switch {
	case e.Refused != "":
		return "refused"
	case e.Draining:
		return "draining"
	}
	return "active"
}

type endpointFlags struct {
	groupFlags
	ID string `arg:"" help:"Id of the endpoint, from carillon endpoint list."`
}

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

type endpointDrainCommand struct{ endpointFlags }

func (e *endpointDrainCommand) Run(ctx context.Context, c console) error { return e.set(ctx, c, true) }

type endpointResumeCommand struct{ endpointFlags }

func (e *endpointResumeCommand) Run(ctx context.Context, c console) error {
	return e.set(ctx, c, false)
}
